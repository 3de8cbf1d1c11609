//go:build system

package examples_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/vaulttest"
)

// TestSecretsOfVault follows deploy/examples/vault, with a stand-in for Vault: secrets are
// renewed, and replaced when they are others.
func TestSecretsOfVault(t *testing.T) {
	m := newMachine(t)
	if m == nil {
		return
	}
	v := vaulttest.Start(t, "127.0.0.1:8200", "a-token-of-vault")
	v.Lend(3 * time.Second)
	v.Put("kv/app", 0, map[string]any{"api_key": "old"})
	m.follow("vault")

	// current waits until the file has the last credentials and this key, and the application
	// has restarted once for each of them.
	current := func(what string, credentials int, key string) {
		t.Helper()
		made := fmt.Sprint(credentials)
		m.eventually(what, "cat /etc/app/secrets.env; grep -cx restarted /var/log/app.log",
			"DB_USER='v-app-"+made+"'\nDB_PASSWORD='made-"+made+"'\nAPI_KEY="+key+"\n"+made+"\n")
	}
	current("the first secrets", 2, "'old'") // at the start and at the reload
	v.Put("kv/app", 0, map[string]any{"api_key": "it's new"})
	if out, err := m.shell(".", "systemctl reload jorc"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	current("a new key", 3, `'it'\''s new'`)

	renewed := v.Renewals()
	consultest.Eventually(t, "the lease to be renewed", func(context.Context) error {
		if v.Renewals() < renewed+2 {
			return errors.New("it was not renewed")
		}
		return nil
	})
	current("a renewal that changes nothing", 3, `'it'\''s new'`)
	v.Accept("another-token")
	if out, err := m.shell(".", "echo another-token >/etc/jorc/vault-token"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	current("the secrets with another token", 4, `'it'\''s new'`)
	v.Lend(time.Hour)
	v.Revoke()
	current("other credentials", 5, `'it'\''s new'`)
	m.eventually("the mode", "stat -c '%a %U %G' /etc/app/secrets.env", "640 root www-data\n")
}

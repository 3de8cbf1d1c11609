package watch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/vaulttest"
	"github.com/jorc/jorc/internal/watch"
)

func TestSecretsOfVault(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	v := vaulttest.Start(t, "127.0.0.1:0", "vault-token")
	v.Put("secret/no-lease", 0, map[string]any{"password": "hunter2"})
	v.Put("secret/app", time.Hour, map[string]any{"password": "hunter2"})
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("vault-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.edit = func(o *watch.Options) { o.Vault = config.Vault{Address: v.URL, TokenFile: token} }
	h.put("user", "joe")
	_, stop := h.run(
		h.tmpl("a", `{{ key "user" }} {{ with secret "secret/no-lease" }}{{ .Data.password }}{{ end }}`),
		h.tmpl("b", `{{ with secret "secret/app" }}{{ .Data.password }}{{ end }}`),
	)
	h.want("a", "joe hunter2")
	h.want("b", "hunter2")
	if v.Asked() == 0 {
		t.Error("Vault was never asked")
	}
	for i := range 5 {
		h.put("user", fmt.Sprint("joe", i))
		h.want("a", fmt.Sprintf("joe%d hunter2", i))
	}
	if n := v.Asked(); n > 4 {
		t.Errorf("Vault was asked %d times for two secrets, want once for each within the first minutes", n)
	}
	h.put("user", "joe")
	h.want("a", "joe hunter2")
	stop()
	snapshot, err := os.ReadFile(filepath.Join(h.state, "snapshot.gob"))
	if err != nil || strings.Contains(string(snapshot), "hunter2") || !strings.Contains(string(snapshot), "joe") {
		t.Errorf("the snapshot on disk (%d bytes, %v) holds the secret, or not even the key", len(snapshot), err)
	}
}

// TestLeaseOutlivesOutage: when Vault returns, the lease of a secret continues, and the template is as
// before the outage.
func TestLeaseOutlivesOutage(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	v := vaulttest.Start(t, "127.0.0.1:0", "vault-token")
	v.Lend(5 * time.Second)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("vault-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.edit = func(o *watch.Options) { o.Vault = config.Vault{Address: v.URL, TokenFile: token} }
	e, _ := h.run(h.tmpl("a", `{{ with secret "database/creds/app" }}{{ .Data.password }}{{ end }}`))
	h.want("a", "made-1")
	v.Away(true)
	away := func(s watch.Status) bool {
		return strings.Contains(fmt.Sprintf("%+v %+v %v", s.Stale, s.Waiting, s.Error), "503")
	} // times have such digits, too
	wantStatus(t, e, "a", "Vault's error", away)
	v.Away(false)
	wantStatus(t, e, "a", "no error", func(s watch.Status) bool { return !away(s) })
	h.want("a", "made-1")
}

// TestTokenOfVaultIsExchanged: a new token in its file is used at once, and what the one before read, whose leases end
// with it, is read again.
func TestTokenOfVaultIsExchanged(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	v := vaulttest.Start(t, "127.0.0.1:0", "first")
	v.Lend(time.Hour)
	token := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	h.edit = func(o *watch.Options) { o.Vault = config.Vault{Address: v.URL, TokenFile: token} }
	h.run(h.tmpl("a", `{{ with secret "database/creds/app" }}{{ .Data.password }}{{ end }}`))
	h.want("a", "made-1")
	for i, next := range []string{"second", "third"} {
		v.Accept(next)
		write(next)
		h.want("a", fmt.Sprint("made-", i+2))
	}
	write("third\n") // the same
	h.put("user", "joe")
	h.want("a", "made-3")
	if n := v.Asked(); n != 3 {
		t.Errorf("Vault was asked %d times, want once with each token", n)
	}
}

func TestSecretsWithoutVault(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	e, _ := h.run(h.tmpl("secret", `{{ with secret "secret/app" }}{{ .Data.password }}{{ end }}`), h.tmpl("good", "x"))
	h.want("good", "x")
	wantStatus(t, e, "secret", "waiting for Vault", func(s watch.Status) bool {
		return s.State == watch.StateWaiting && mentions(s.Waiting, "no Vault is configured")
	})
}

package doctor

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/expiry"
	"github.com/jorc/jorc/internal/web"
)

// TestExpiryOfVaultAndAgent: doctor asks Vault when its token ends, and the agent about
// certificates of templates. What both know it asks once, and it says what Vault answers.
func TestExpiryOfVaultAndAgent(t *testing.T) {
	t.Parallel()
	now := time.Now()
	vault := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/auth/token/lookup-self" || r.Header.Get("X-Vault-Token") != "good" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{
			"creation_time": now.Add(-time.Hour).Unix(), "expire_time": now.Add(time.Minute).Format(time.RFC3339Nano), "renewable": true,
		}})
	}))
	t.Cleanup(vault.Close)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(web.Status{Expiry: []web.Expiry{
			{Kind: expiry.Certificate, Name: "template.web", From: now.Add(-time.Hour), Until: now.Add(time.Hour)},
			{Kind: expiry.Token, Name: "vault.token", From: now, Until: now.Add(9 * time.Hour)},
		}})
	}))
	t.Cleanup(agent.Close)
	state := t.TempDir()
	lock, err := durable.TryLock(filepath.Join(state, catalog.LockFile)) // as a running agent has it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Unlock() }) // the directory goes with the test
	e := &examination{client: consultest.Start(t).Client(), Options: Options{Timeout: DefaultTimeout, Config: &config.Config{
		StateDir: state, Vault: config.Vault{Address: vault.URL, TokenFile: tokenFile(t, "good")}, HTTP: config.HTTP{Addr: strings.TrimPrefix(agent.URL, "http://")},
	}}}
	want := func(what string, lines ...string) {
		t.Helper()
		found := e.expiry(t.Context())
		if len(found) != len(lines) {
			t.Fatalf("%s: got %+v, want %q", what, found, lines)
		}
		for i, f := range found {
			if got := string(f.Status) + ": " + f.Detail; !strings.HasPrefix(got, lines[i]) || strings.Contains(got, "bad-token") {
				t.Errorf("%s: got %q, want %q", what, got, lines[i])
			}
		}
	}
	want("both answer", "warn: token vault.token ends at ", "ok: certificate template.web is valid until ")
	e.Config.Vault.TokenFile = tokenFile(t, "bad-token")
	want("Vault refuses the token", "ok: certificate template.web is valid until ", "ok: token vault.token is valid until ")
	agent.Close()
	want("and there is no agent", "warn: look up Vault's token: ")
}

func tokenFile(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestClassifyExpiry(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	item := expiry.Item{Kind: expiry.Certificate, Name: "consul.client_cert", From: begin, Until: begin.AddDate(0, 0, 90)}
	renewed := item
	renewed.Renewed = true
	for _, tt := range []struct {
		item   expiry.Item
		days   int
		status Status
		detail string
	}{
		{item, 1, OK, "certificate consul.client_cert is valid until 2026-04-01 00:00 UTC"},
		{item, 80, Warn, "less than a third"},
		{item, 90, Fail, "ended at 2026-04-01"},
		{renewed, 67, OK, "is valid until"},
		{renewed, 68, Warn, "less than a quarter"},
		{expiry.Item{Name: "vault.ca_file", Err: errors.New("no such file")}, 1, Fail, "vault.ca_file: no such file"},
	} {
		got := classifyExpiry(tt.item, begin.AddDate(0, 0, tt.days))
		if got.Status != tt.status || !strings.Contains(got.Detail, tt.detail) || (got.Remedy == "") != (tt.status == OK) {
			t.Errorf("after %d days: got %+v, want %s, %q", tt.days, got, tt.status, tt.detail)
		}
	}
}

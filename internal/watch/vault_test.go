package watch_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/watch"
)

// vault answers as Vault's key-value store does, in version 1; it cannot be
// built here.
func vault(t *testing.T, token, value string) (address string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("X-Vault-Token") != token {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/v1/secret/") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		answer := map[string]any{"data": map[string]any{"password": value}}
		if !strings.HasSuffix(r.URL.Path, "/no-lease") {
			answer["lease_duration"] = 3600
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func TestSecretsOfVault(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	address, asked := vault(t, "vault-token", "hunter2")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("vault-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.edit = func(o *watch.Options) { o.Vault = config.Vault{Address: address, TokenFile: token} }
	h.put("user", "joe")
	_, stop := h.run(
		h.tmpl("a", `{{ key "user" }} {{ with secret "secret/no-lease" }}{{ .Data.password }}{{ end }}`),
		h.tmpl("b", `{{ with secret "secret/app" }}{{ .Data.password }}{{ end }}`),
	)
	h.want("a", "joe hunter2")
	h.want("b", "hunter2")
	if asked.Load() == 0 {
		t.Error("Vault was never asked")
	}
	for i := range 5 {
		h.put("user", fmt.Sprint("joe", i))
		h.want("a", fmt.Sprintf("joe%d hunter2", i))
	}
	if n := asked.Load(); n > 4 {
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

func TestSecretsWithoutVault(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	e, _ := h.run(h.tmpl("secret", `{{ with secret "secret/app" }}{{ .Data.password }}{{ end }}`), h.tmpl("good", "x"))
	h.want("good", "x")
	wantStatus(t, e, "secret", "waiting for Vault", func(s watch.Status) bool {
		return s.State == watch.StateWaiting && mentions(s.Waiting, "no Vault is configured")
	})
}

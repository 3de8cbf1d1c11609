package agent_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/expiry"
)

// TestTokenExpires: the agent's status has until when its token is valid, also after the
// token's file was replaced.
func TestTokenExpires(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	h := newHost(t, s, `consul { token_file = "DIR/token" }`)
	give := func(ttl time.Duration) time.Time {
		t.Helper()
		token, err := s.Client().CreateToken(t.Context(), "a host", ttl, "global-management")
		if err != nil {
			t.Fatal(err)
		}
		h.write("token", token.SecretID)
		return *token.ExpirationTime
	}
	want := func(until time.Time) {
		t.Helper()
		h.eventually("the end of the token", func() error {
			all := h.agent.Status().Expiry
			if len(all) != 1 || all[0].Kind != expiry.Token || all[0].Name != "consul.token" || !all[0].Until.Equal(until) || all[0].From.IsZero() || all[0].Soon {
				return fmt.Errorf("got %+v, want %v", all, until)
			}
			return nil
		})
	}
	until := give(time.Hour)
	h.start()
	want(until)
	want(give(2 * time.Hour))
}

// TestVaultTokenExpires: the agent's status and metrics have until when Vault's token is valid, and
// the host reports one that ends soon until it is renewed, with the certificates of which
// that is true.
func TestVaultTokenExpires(t *testing.T) {
	t.Parallel()
	var until atomic.Int64 // unix
	until.Store(time.Now().Add(time.Minute).Unix())
	created := time.Now().Add(-time.Hour)
	vault := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/auth/token/lookup-self" || r.Header.Get("X-Vault-Token") == "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{
			"creation_time": created.Unix(), "expire_time": time.Unix(until.Load(), 0).UTC().Format(time.RFC3339), "renewable": true,
		}})
	}))
	t.Cleanup(vault.Close)
	settings := `
member {}
vault {
  address    = "` + vault.URL + `"
  token_file = "DIR/vault-token"
`
	h := newHost(t, consultest.Start(t), settings+`ca_file = "DIR/no-such-file"
}`)
	h.write("vault-token", "first")
	h.start()
	reported := func(want ...cluster.Expiring) {
		t.Helper()
		h.eventually(fmt.Sprint("the report to have ", want), func() error {
			r, _, err := h.cluster().Report(t.Context(), h.server.Node)
			if got := r.EndsSoon(); err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("got %+v, %v", got, err)
			}
			return nil
		})
	}
	token := cluster.Expiring{Kind: expiry.Token, Name: "vault.token", Until: time.Unix(until.Load(), 0).UTC()}
	reported(cluster.Expiring{Kind: expiry.Certificate, Name: "vault.ca_file"}, token)
	h.configure(settings + "}")
	if r := h.reload(); !r.OK {
		t.Fatalf("reload: %+v", r)
	}
	reported(token)
	if all := h.agent.Status().Expiry; len(all) != 1 || !all[0].Soon || !all[0].Renewed || all[0].From.Unix() != created.Unix() {
		t.Errorf("the status: %+v", all)
	}
	until.Store(time.Now().Add(10 * time.Hour).Unix())
	h.write("vault-token", "second")
	reported()
	if all := h.agent.Status().Expiry; len(all) != 1 || all[0].Soon || all[0].Until.Unix() != until.Load() {
		t.Errorf("the status: %+v", all)
	}
}

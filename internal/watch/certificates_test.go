package watch_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/expiry"
	"github.com/jorc/jorc/internal/watch"
)

// TestCertificatesOfTemplates: the certificate of a template is the one in its file, also while the
// host is held; where the file has none, the one that it was rendered with.
func TestCertificatesOfTemplates(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	begin := time.Now().Truncate(time.Second)
	cert := func(life time.Duration) string { return certificate(t, begin, begin.Add(life)) }
	issued := cert(3 * time.Hour)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{"certificate": issued}})
	}))
	t.Cleanup(s.Close)
	h.edit = func(o *watch.Options) { o.Vault = config.Vault{Address: s.URL} }
	h.put("none", "x")
	e, _ := h.run(
		h.tmpl("cert", `{{ with pkiCert "pki/issue/web" "common_name=web" }}{{ .Cert }}{{ end }}`),
		h.tmpl("elsewhere", `{{ with pkiCert "pki/issue/web" "common_name=other" }}{{ len .Cert }}{{ end }}`),
		h.tmpl("plain", `{{ key "none" }}`),
	)
	h.want("cert", issued)
	h.want("elsewhere", fmt.Sprint(len(issued)))
	h.want("plain", "x")
	var files expiry.Reader
	want := func(until map[string]time.Time) {
		t.Helper()
		got := map[string]time.Time{}
		for _, i := range e.Certificates(&files) {
			if got[i.Name] = i.Until; i.Err != nil || i.Kind != expiry.Certificate || !i.From.Equal(begin) {
				t.Errorf("got %+v", i)
			}
		}
		if !maps.EqualFunc(got, until, time.Time.Equal) {
			t.Errorf("got %v, want %v", got, until)
		}
	}
	want(map[string]time.Time{"template.cert": begin.Add(3 * time.Hour), "template.elsewhere": begin.Add(3 * time.Hour)})
	if err := os.WriteFile(h.path("cert"), []byte(cert(time.Hour)), 0o600); err != nil {
		t.Fatal(err)
	}
	want(map[string]time.Time{"template.cert": begin.Add(time.Hour), "template.elsewhere": begin.Add(3 * time.Hour)})
}

// certificate is one in PEM that signed itself.
func certificate(t *testing.T, from, until time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestVaultToken: the end of Vault's token, and since when it lives: since its last renewal.
func TestVaultToken(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	renewed, ends := created.AddDate(0, 1, 0), created.AddDate(0, 2, 0)
	for name, tt := range map[string]struct {
		data map[string]any
		want *expiry.Item
		err  string
	}{
		"a root token":    {map[string]any{"expire_time": nil, "ttl": 0}, nil, ""},
		"one that ends":   {map[string]any{"creation_time": created.Unix(), "expire_time": "2026-03-01T00:00:00Z", "renewable": false}, &expiry.Item{From: created, Until: ends}, ""},
		"a new one":       {map[string]any{"creation_time": created.Unix(), "expire_time": "2026-03-01T00:00:00.5Z", "renewable": true}, &expiry.Item{From: created, Until: ends.Add(time.Second / 2), Renewed: true}, ""},
		"a renewed one":   {map[string]any{"creation_time": created.Unix(), "last_renewal_time": renewed.Unix(), "expire_time": "2026-03-01T00:00:00Z", "renewable": true}, &expiry.Item{From: renewed, Until: ends, Renewed: true}, ""},
		"nonsense":        {map[string]any{"expire_time": "s3cret"}, nil, "its expire_time is not a time"},
		"another's token": {nil, nil, "403 Forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v1/auth/token/lookup-self" || r.Header.Get("X-Vault-Token") != "vault-token" || r.Header.Get("X-Vault-Namespace") != "ops" || tt.data == nil {
					w.WriteHeader(http.StatusForbidden)
					_ = json.NewEncoder(w).Encode(map[string]any{"errors": []string{"permission denied"}})
					return
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"data": tt.data})
			}))
			t.Cleanup(s.Close)
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte("vault-token\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := watch.VaultToken(t.Context(), config.Consul{}, config.Vault{Address: s.URL, TokenFile: file, Namespace: "ops"})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), s.URL) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || (got == nil) != (tt.want == nil) {
				t.Fatalf("got %+v, %v, want %+v", got, err, tt.want)
			}
			if got != nil && (got.Kind != expiry.Token || got.Name != "vault.token" || !got.From.Equal(tt.want.From) || !got.Until.Equal(tt.want.Until) || got.Renewed != tt.want.Renewed) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

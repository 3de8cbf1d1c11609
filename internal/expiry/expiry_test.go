package expiry_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/expiry"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// certificate is a PEM that is valid for so many days from begin on.
func certificate(t *testing.T, days int) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: begin, NotAfter: begin.AddDate(0, 0, days)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestCertificates: of a chain the first end counts, of authorities the last, and a file is read
// again when it has changed.
func TestCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, cas := filepath.Join(dir, "pem"), filepath.Join(dir, "cas")
	if err := os.Mkdir(cas, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(path string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, append(certificate(t, 90), certificate(t, 30)...))
	write(filepath.Join(cas, "a"), certificate(t, 10))
	write(filepath.Join(cas, "b"), certificate(t, 20))
	write(filepath.Join(cas, "README"), []byte("authorities"))
	c := &config.Config{
		Consul: config.Consul{CAFile: file, CAPath: cas, ClientCert: file},
		Vault:  config.Vault{CAFile: filepath.Join(dir, "none")},
		UI:     &config.UI{TLS: config.UITLS{CertFile: file}},
	}
	var r expiry.Reader
	check := func(want map[string]int) {
		t.Helper()
		all := r.Certificates(c)
		if len(all) != len(want) {
			t.Fatalf("got %+v, want %v", all, want)
		}
		for _, i := range all {
			days, ok := want[i.Name]
			switch {
			case !ok || i.Kind != expiry.Certificate || (i.Err != nil) != (days == 0):
				t.Errorf("got %+v", i)
			case days > 0 && (!i.Until.Equal(begin.AddDate(0, 0, days)) || !i.From.Equal(begin)):
				t.Errorf("%s: got %v to %v, want %d days", i.Name, i.From, i.Until, days)
			}
		}
	}
	want := map[string]int{"consul.ca_file": 90, "consul.ca_path": 20, "consul.client_cert": 30, "vault.ca_file": 0, "ui.tls.cert_file": 30}
	check(want)
	write(file+"2", certificate(t, 60))
	if err := os.Rename(file+"2", file); err != nil {
		t.Fatal(err)
	}
	want["consul.ca_file"], want["consul.client_cert"], want["ui.tls.cert_file"] = 60, 60, 60
	check(want)
	write(file, append([]byte("# made by jorc\n"), append(certificate(t, 50), certificate(t, 70)...)...))
	if i := r.InFile("template.web", file); i.Err != nil || i.Name != "template.web" || !i.Until.Equal(begin.AddDate(0, 0, 50)) {
		t.Errorf("a rendered file: got %+v", i)
	}
	if i := r.InFile("template.web", filepath.Join(cas, "README")); !errors.Is(i.Err, expiry.ErrNone) {
		t.Errorf("a file without a certificate: got %+v", i)
	}
}

func TestSoon(t *testing.T) {
	t.Parallel()
	i := expiry.Item{From: begin, Until: begin.AddDate(0, 0, 90)}
	for _, tt := range []struct {
		after       int // days
		soon, ended bool
	}{{0, false, false}, {59, false, false}, {61, true, false}, {89, true, false}, {90, true, true}, {91, true, true}} {
		now := begin.AddDate(0, 0, tt.after)
		if i.Soon(now) != tt.soon || i.Ended(now) != tt.ended {
			t.Errorf("after %d days: got %t, %t, want %t, %t", tt.after, i.Soon(now), i.Ended(now), tt.soon, tt.ended)
		}
	}
	renewed := i
	renewed.Renewed = true
	for after, soon := range map[int]bool{61: false, 67: false, 68: true, 90: true} {
		if got := renewed.Soon(begin.AddDate(0, 0, after)); got != soon {
			t.Errorf("renewed, after %d days: got %t, want %t", after, got, soon)
		}
	}
	if got := expiry.OfToken(begin, time.Time{}); got != nil {
		t.Errorf("a token without an end: got %+v", got)
	}
	if i := (expiry.Item{Err: os.ErrNotExist}); i.Soon(begin) || i.Ended(begin) {
		t.Error("what cannot be read ends at no time")
	}
}

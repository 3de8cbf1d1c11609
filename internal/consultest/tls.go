package consultest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// writeCertificates makes a certificate authority and a server certificate for
// ip, points conf at them, and returns the authority's file.
func writeCertificates(t testing.TB, dir, ip string, conf map[string]any) (caFile string) {
	t.Helper()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "jorc test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "server.dc1.consul"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"server.dc1.consul", "localhost"}, IPAddresses: []net.IP{net.ParseIP(ip)},
	}
	caKey, leafKey := newKey(t), newKey(t)
	caFile = filepath.Join(dir, "ca.pem")
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, caFile, "CERTIFICATE", sign(t, ca, ca, caKey, caKey))
	writePEM(t, certFile, "CERTIFICATE", sign(t, leaf, ca, leafKey, caKey))
	der, err := x509.MarshalECPrivateKey(leafKey)
	if err != nil {
		t.Fatalf("consultest: %v", err)
	}
	writePEM(t, keyFile, "EC PRIVATE KEY", der)
	ports := conf["ports"].(map[string]any)
	ports["http"], ports["https"] = -1, 8501
	conf["tls"] = map[string]any{"defaults": map[string]any{"ca_file": caFile, "cert_file": certFile, "key_file": keyFile}}
	return caFile
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("consultest: %v", err)
	}
	return key
}

func sign(t testing.TB, cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatalf("consultest: %v", err)
	}
	return der
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	data := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatalf("consultest: %v", err)
	}
}

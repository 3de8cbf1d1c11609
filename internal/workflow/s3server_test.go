package workflow

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
)

// Keys of the test's S3 server.
const (
	s3TestKey    = "jorc-test-key"
	s3TestSecret = "correct-horse-battery-staple"
)

// s3Server is a real S3 server with the bucket "logs".
type s3Server struct {
	t      testing.TB
	addr   string
	ca     *x509.CertPool // with TLS
	client *minio.Client
}

// s3Binary returns the path of the versitygw program: VERSITYGW_BIN, the
// project's bin/versitygw, or the one on PATH.
func s3Binary(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("VERSITYGW_BIN"); path != "" {
		return path
	}
	built := filepath.Join(consultest.Root(t), "bin", "versitygw")
	if _, err := os.Stat(built); err == nil {
		return built
	}
	path, err := exec.LookPath("versitygw")
	if err != nil {
		t.Fatal("no versitygw program, the S3 server of the tests: run 'make versitygw', or set VERSITYGW_BIN")
	}
	return path
}

// startS3 runs a server until the test ends; with tls one that speaks only TLS.
func startS3(t testing.TB, tls bool) *s3Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &s3Server{t: t, addr: l.Addr().String()}
	args := []string{"--port", s.addr, "--quiet", "--virtual-domain", "s3.test", "--iam-dir", t.TempDir()}
	if tls {
		certificate, key := s.certificate()
		args = append(args, "--cert", certificate, "--key", key)
	}
	args = append(args, "posix", "--sidecar", t.TempDir(), t.TempDir())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	server := exec.Command(s3Binary(t), args...)
	server.Env = []string{"ROOT_ACCESS_KEY_ID=" + s3TestKey, "ROOT_SECRET_ACCESS_KEY=" + s3TestSecret, "HOME=" + t.TempDir()}
	server.Stdout, server.Stderr = &said, &said
	// A test binary that is killed takes its server with it: the signal comes
	// when the thread ends that started the process.
	server.SysProcAttr = command.Attached()
	started, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		err := server.Start()
		started <- err
		if err == nil {
			_ = server.Wait() // it is killed below
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill() // it may be gone
		<-ended
		if t.Failed() {
			t.Logf("versitygw: %s", said.String())
		}
	})

	store := s.store("", nil)
	if s.client, err = minio.New(s.addr, &minio.Options{
		Creds: credentials.NewStaticV4(s3TestKey, s3TestSecret, ""), Secure: tls, Transport: store.client.transport, Region: s3Region,
	}); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "the S3 server", func(ctx context.Context) error {
		there, err := s.client.BucketExists(ctx, "logs")
		if err == nil && !there {
			err = s.client.MakeBucket(ctx, "logs", minio.MakeBucketOptions{})
		}
		return err
	})
	t.Cleanup(store.client.transport.CloseIdleConnections)
	return s
}

// certificate writes a certificate for the server's address, and its key.
func (s *s3Server) certificate() (certificate, key string) {
	s.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		s.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		s.t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		s.t.Fatal(err)
	}
	s.ca = x509.NewCertPool()
	s.ca.AddCert(parsed)
	dir := s.t.TempDir()
	certificate, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	return certificate, key
}

// store is a store in the bucket "logs" of s with the right keys, unless
// change says otherwise.
func (s *s3Server) store(prefix string, change func(*config.S3)) *S3Store {
	s.t.Helper()
	c := config.S3{
		Endpoint: s.addr, Bucket: "logs", Prefix: prefix, Insecure: s.ca == nil,
		CredentialsFile: credentialsFile(s.t, s3TestKey, s3TestSecret),
	}
	if change != nil {
		change(&c)
	}
	store, err := NewS3Store(c)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.ca != nil && !c.Insecure {
		store.client.transport.TLSClientConfig.RootCAs = s.ca
	}
	return store
}

// user makes a user who may do nothing, and returns its credentials file.
func (s *s3Server) user(name, secret string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s3Binary(s.t), "admin", "--endpoint-url", "http://"+s.addr,
		"create-user", "--access", name, "--secret", secret, "--role", "user")
	cmd.Env = []string{"ADMIN_ACCESS_KEY_ID=" + s3TestKey, "ADMIN_SECRET_ACCESS_KEY=" + s3TestSecret}
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("versitygw admin create-user: %v\n%s", err, out)
	}
	return credentialsFile(s.t, name, secret)
}

// wantObject compares an object of the bucket "logs".
func (s *s3Server) wantObject(key, text string) {
	s.t.Helper()
	object, err := s.client.GetObject(s.t.Context(), "logs", key, minio.GetObjectOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = object.Close() }()
	data, err := io.ReadAll(object)
	if err != nil {
		s.t.Fatalf("%s: %v", key, err)
	}
	if string(data) != text {
		s.t.Errorf("%s: got %d bytes, want %d: %.80q", key, len(data), len(text), data)
	}
	info, err := object.Stat()
	if err != nil {
		s.t.Fatal(err)
	}
	want(s.t, "content type", info.ContentType, "text/plain; charset=utf-8")
}

func credentialsFile(t testing.TB, key, secret string) string {
	t.Helper()
	text := fmt.Sprintf("[other]\naws_access_key_id = x\n[default]\naws_access_key_id = %s\naws_secret_access_key=%s\n", key, secret)
	return textFile(t, text)
}

func textFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// dialing makes the store connect to addr whatever its endpoint is.
func dialing(s *S3Store, addr string) *S3Store {
	s.client.transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	return s
}

func secretsIn(text string) bool {
	return strings.Contains(text, s3TestSecret) || strings.Contains(text, s3TestKey)
}

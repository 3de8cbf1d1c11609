//go:build system

package catalog_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/durable"
)

// TestResolvConfOfAnotherUser: jorc's own resolver reads /etc/resolv.conf where root has linked it to
// a file of another system user, as systemd-resolved does; templates do not follow such a link.
func TestResolvConfOfAnotherUser(t *testing.T) {
	t.Parallel()
	s := serveDNSAt(t, "127.77.0.55", says(t, 0, "h.corp.example. 0 IN A 10.0.0.1"))
	dir := t.TempDir()
	stub, conf := filepath.Join(dir, "stub-resolv.conf"), filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(stub, []byte("nameserver 127.77.0.55\n"), 0o644); err != nil { //nolint:gosec // as systemd-resolved writes it
		t.Fatal(err)
	}
	const resolved = 991
	if err := os.Chown(stub, resolved, resolved); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(stub, conf); err != nil {
		t.Fatal(err)
	}
	if _, err := durable.ReadFile(conf, 0); err == nil {
		t.Error("a template may read the link")
	}
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	r := resolver(t, catalog.System, catalog.ResolvConf(conf), catalog.SystemPort(port))
	if got, err := r.Addresses(t.Context(), "h.corp.example.", false); err != nil || len(got.Addrs) != 1 {
		t.Errorf("the resolver: %v, %v", got, err)
	}
}

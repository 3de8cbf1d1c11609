package fleetlock

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

func pair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close() // tests close them, too
		_ = s.Close()
	})
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

func port(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }

// TestOwner: a connection has an owner while its process has it open, and none, not even root, when it
// is closed.
func TestOwner(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	from, to := port(server.RemoteAddr()), port(server.LocalAddr())
	if uid, err := owner(from, to); err != nil || uid != os.Getuid() {
		t.Errorf("got %d, %v, want %d", uid, err, os.Getuid())
	}
	if _, err := owner(to, to); err == nil {
		t.Error("the owner of no connection is known")
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if uid, err := owner(from, to); !errors.Is(err, errGone) {
		t.Errorf("the owner of a closed connection: %d, %v", uid, err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if uid, err := owner(from, to); err == nil { // the kernel keeps it for a minute
		t.Errorf("the owner of a connection that has ended is %d", uid)
	}
}

// TestRowIn reads tables as kernels of little-endian machines write them.
func TestRowIn(t *testing.T) {
	t.Parallel()
	table := filepath.Join(t.TempDir(), "tcp")
	text := `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2148 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 101 1 0000000000000000 100 0 0 10 0
   1: 0100007F:C001 0100007F:2148 01 00000000:00000000 02:00000B5E 00000000   990        0 102 2 0000000000000000 20 4 30 10 -1
   2: 0100007F:C002 0100007F:2148 06 00000000:00000000 03:0000176F 00000000     0        0 0 3 0000000000000000
   3: 0100007F:C003 0100007F:2148 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0000000000000000
   4: 00000000000000000000000001000000:C004 00000000000000000000000001000000:2148 01 00000000:00000000 00:00000000 00000000   991        0 104 1 0000000000000000 20 0 0 10 -1
   5: 0000000000000000FFFF00000100007F:C005 0000000000000000FFFF00000100007F:2148 01 00000000:00000000 00:00000000 00000000   992        0 105 1 0000000000000000 20 0 0 10 -1
   6: 0100007F:C006 0100007F:2148 01 00000000:00000000 00:00000000 00000000    -1        0 106 1 0000000000000000
`
	if err := os.WriteFile(table, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		from, to string
		uid      int
		ok       bool
	}{
		{"127.0.0.1:49153", "127.0.0.1:8520", 990, true},
		{"127.0.0.1:49154", "127.0.0.1:8520", 0, false}, // waits for its end
		{"127.0.0.1:49155", "127.0.0.1:8520", 0, false}, // no process has it
		{"[::1]:49156", "[::1]:8520", 991, true},
		{"127.0.0.1:49157", "127.0.0.1:8520", 992, true},
		{"[::ffff:127.0.0.1]:49153", "127.0.0.1:8520", 990, true},
		{"127.0.0.1:49158", "127.0.0.1:8520", 0, false},
		{"127.0.0.1:8520", "127.0.0.1:49153", 0, false}, // the other end
		{"127.0.0.1:49153", "127.0.0.2:8520", 0, false},
	} {
		got, err := rowIn(table, netip.MustParseAddrPort(test.from), netip.MustParseAddrPort(test.to))
		if (err == nil) != test.ok || got.uid != test.uid {
			t.Errorf("%s to %s: %+v, %v, want %d", test.from, test.to, got, err, test.uid)
		}
	}
}

// TestUserIn reads files of users.
func TestUserIn(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "passwd")
	if _, found, err := userIn(file, "zincati"); found || err != nil {
		t.Errorf("without a file: %v, %v", found, err)
	}
	if err := os.WriteFile(file, []byte("root:x:0:0::/root:/bin/sh\nzincati:x:990:985:Zincati:/:/sbin/nologin\nodd:x:-1:1::/:/\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"zincati": 990, "root": 0} {
		if uid, found, err := userIn(file, name); uid != want || !found || err != nil {
			t.Errorf("%s: %d, %v, %v", name, uid, found, err)
		}
	}
	if _, found, err := userIn(file, "zinc"); found || err != nil {
		t.Errorf("another: %v, %v", found, err)
	}
	if _, _, err := userIn(file, "odd"); err == nil {
		t.Error("an odd number is no error")
	}
}

package consultest

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared is the server of all tests of this binary that call Shared.
var shared struct {
	sync.Mutex
	owner  *binary
	server *Server
	names  int
}

// Shared returns a Consul server that all callers in this test binary use, and
// a name that no other caller has, for the test's cluster, prefix, services or
// keys. The first caller starts the server, with its options, so all callers of
// a package pass the same ones; Main stops it. The server belongs to all of
// them: a test that stops it, needs ACLs, counts what is in the catalog or
// changes the agent's node calls Start.
func Shared(t testing.TB, opts ...Option) (s *Server, name string) {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.owner == nil {
		t.Fatal("consultest: Shared needs a TestMain that calls Main")
	}
	if shared.server == nil {
		shared.owner.TB = t
		// Together the tests need more connections than one host is allowed.
		unlimited := WithConfig(map[string]any{"limits": map[string]any{"http_max_conns_per_client": 8192}})
		shared.server = Start(shared.owner, append([]Option{unlimited}, opts...)...)
	}
	shared.names++
	view := *shared.server
	view.t, view.shared = t, true
	return &view, fmt.Sprintf("t%d", shared.names)
}

// Main runs the tests of a package, stops the server that Shared started, and
// returns the exit code. It is for TestMain.
func Main(m *testing.M) int {
	shared.owner = &binary{}
	defer shared.owner.end()
	return m.Run()
}

// binary stands in for the test that started the shared server: what that test
// would clean up at its end is cleaned up at the end of all tests.
type binary struct {
	testing.TB
	cleanups []func()
}

func (b *binary) Cleanup(f func()) { b.cleanups = append(b.cleanups, f) }

func (b *binary) Failed() bool { return false }

func (b *binary) TempDir() string {
	b.Helper()
	dir, err := os.MkdirTemp("", "consultest-")
	if err != nil {
		b.Fatalf("consultest: %v", err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) }) // what is left is in the directory for temporary files
	return dir
}

func (b *binary) end() {
	for i := len(b.cleanups) - 1; i >= 0; i-- {
		b.cleanups[i]()
	}
}

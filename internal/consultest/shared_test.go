package consultest_test

import (
	"os"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

func TestMain(m *testing.M) { os.Exit(consultest.Main(m)) }

// TestShared: callers get one server, names of their own, and clients that
// close with their own test.
func TestShared(t *testing.T) {
	var addresses, names [2]string
	for i := range addresses {
		t.Run("caller", func(t *testing.T) {
			s, name := consultest.Shared(t)
			addresses[i], names[i] = s.HTTPAddr, name
			if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: name}); err != nil {
				t.Fatal(err)
			}
		})
	}
	if addresses[0] != addresses[1] || names[0] == names[1] {
		t.Errorf("got servers %q and names %q; want one server, two names", addresses, names)
	}
}

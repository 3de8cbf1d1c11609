package agent_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
)

// TestSlowConsul: an agent whose Consul answers each question about keys in 5 s, and one even later, gets
// ready, stays so, and does not take Consul for unreachable; a template with another key
// follows meanwhile.
func TestSlowConsul(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	proxy := s.Proxy()
	proxy.Do(func(r *http.Request) consultest.Fault {
		switch {
		case strings.HasSuffix(r.URL.Path, "/slowest"):
			return consultest.Fault{Slow: 12 * time.Second}
		case strings.HasPrefix(r.URL.Path, "/v1/kv/"), strings.HasPrefix(r.URL.Path, "/v1/txn"):
			return consultest.Fault{Slow: 5 * time.Second}
		}
		return consultest.Fault{}
	})
	h := newHost(t, s, `
service "web" { port = 80 }
member {}
template "slow" {
  contents    = "{{ key \"slow\" }}"
  destination = "DIR/slow"
}
template "slowest" {
  contents    = "{{ key \"slowest\" }}"
  destination = "DIR/slowest"
}
`)
	h.address = proxy.Addr
	h.put("slow", "1")
	h.put("slowest", "1")
	h.start()
	ready := func() error {
		resp, err := http.Get("http://" + h.agent.StatusAddr() + "/healthz?ready")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("ready: %s", resp.Status)
		}
		return nil
	}
	h.wantFile("slow", "1")
	h.wantFile("slowest", "1")
	h.eventually("the agent to be ready", ready)
	var doubts []error
	follows := func(name, want string) {
		t.Helper()
		h.put(name, want)
		h.eventually("the file of "+name+" to follow", func() error {
			if since := h.agent.Status().Consul.UnreachableSince; !since.IsZero() {
				doubts = append(doubts, fmt.Errorf("Consul counts as unreachable since %v", since))
			}
			if err := ready(); err != nil {
				doubts = append(doubts, err)
			}
			data, err := os.ReadFile(h.path(name))
			if err == nil && string(data) != want {
				err = fmt.Errorf("got %q", data)
			}
			return err
		})
	}
	follows("slow", "2")
	follows("slowest", "2")
	if len(doubts) > 0 {
		t.Errorf("%d times, first: %v", len(doubts), doubts[0])
	}
}

package agent_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

// blocking stands in front of Consul and knows which queries block at present.
type blocking struct {
	mu  sync.Mutex
	now map[string]int // by path
}

func (b *blocking) count(path string, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now[path] += by; b.now[path] == 0 {
		delete(b.now, path)
	}
}

// paths are those of the queries that block now, one for each.
func (b *blocking) paths() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, path := range slices.Sorted(maps.Keys(b.now)) {
		for range b.now[path] {
			all = append(all, path)
		}
	}
	return all
}

// inFront returns what counts blocking queries to s, and its address.
func inFront(t *testing.T, s *consultest.Server) (*blocking, string) {
	t.Helper()
	b := &blocking{now: map[string]int{}}
	to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.HTTPAddr})
	front := httptest.NewServer(consultest.WholeBody(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("index") != "" || q.Get("hash") != "" {
			b.count(r.URL.Path, 1)
			defer b.count(r.URL.Path, -1)
		}
		to.ServeHTTP(w, r)
	})))
	t.Cleanup(front.Close)
	return b, front.Listener.Addr().String()
}

// TestFourQueries: an idle agent without templates has four blocking queries: on
// the keys that all hosts watch, on its own keys, on its services in the catalog and
// on its health; and a fifth on the election if its member may lead.
func TestFourQueries(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	h := newHost(t, s, `
version_file = "DIR/version"
member {}
static { workflow = "converge" }
workflow "converge" {
  task "nothing" { command = ["true"] }
}
`)
	b, address := inFront(t, s)
	h.address = address
	if _, err := h.cluster().Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	held, err := h.cluster().Store().Lock(t.Context(), cluster.KeyElection, kv.LeaseOptions{Holder: kv.Holder{Node: "another"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Release(t.Context()) })
	h.trigger("v1")
	h.start()
	h.wantVersion("v1")
	want := []string{
		"/v1/catalog/node/" + s.Node, "/v1/health/node/" + s.Node, "/v1/kv/jorc/default/current", "/v1/kv/jorc/default/" + cluster.KeyElection,
		"/v1/kv/jorc/default/host/" + s.Node + "/",
	}
	same := func() error {
		if got := b.paths(); !slices.Equal(got, want) {
			return fmt.Errorf("these queries block:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	}
	h.eventually("four queries and that of the election", same)
	h.trigger("v2")
	h.wantVersion("v2")
	if _, err := h.cluster().Hold(t.Context(), cluster.Scope{Node: s.Node}, cluster.Hold{Reason: "the moon"}); err != nil {
		t.Fatal(err)
	}
	h.eventually("the hold", func() error {
		if status := h.agent.Status(); !strings.Contains(status.Held, "the moon") {
			return fmt.Errorf("held: %q", status.Held)
		}
		return nil
	})
	h.eventually("the same queries again", same)
}

// TestOtherLayout: an agent takes no part in a cluster whose keys have another
// layout, says what to do, and does its part as soon as the layout is its own.
func TestOtherLayout(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), "member {}\n")
	if _, err := h.cluster().Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	h.put("jorc/default/"+cluster.KeyLayout, "99")
	h.start()
	h.eventually("the refusal", func() error {
		if !strings.Contains(h.log.String(), "upgrade jorc on this host") {
			return fmt.Errorf("the log is %s", h.log)
		}
		return nil
	})
	if names, err := kv.NewTextTree(h.cluster().Store(), cluster.PrefixHosts).Names(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("it wrote %q, %v", names, err)
	}
	h.put("jorc/default/"+cluster.KeyLayout, fmt.Sprint(cluster.Layout))
	h.wantRecord("the record", func(cluster.Record) bool { return true })
}

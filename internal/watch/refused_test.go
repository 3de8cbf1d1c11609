package watch_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/watch"
)

// logged collects an engine's log.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// refusedKey is a key that Consul does not take, and how a template names it.
type refusedKey struct{ key, function string }

// refusing are two ways to a Consul that refuses keys: as the one under test does, and as 1.21 does.
func refusing(h *host) map[string]struct {
	conf consulConfig
	keys []refusedKey
} {
	ways := map[string]struct {
		conf consulConfig
		keys []refusedKey
	}{
		"this Consul": {h.server.Config(), []refusedKey{{"app//b", "key"}, {"app/./b", "key"}, {"app/a\x01b", "key"}, {"app/a\x01", "ls"}, {"app//", "tree"}}},
		"as 1.21": {h.server.Strict().Config(), []refusedKey{
			{"app/v1+b", "key"}, {"app/v2+b", "key"}, {"app/ b ", "key"}, {"app/n 1", "key"}, {"app/v1+b/", "ls"}, {"app/v1:x", "keyOrDefault"}, {"app//b", "key"},
		}},
	}
	if h.server.Refuses("app/ b ") {
		own := ways["this Consul"]
		own.keys = append(own.keys, refusedKey{"app/ b ", "key"}, refusedKey{"app/b ", "ls"})
		ways["this Consul"] = own
	}
	return ways
}

type consulConfig = config.Consul

// TestRefusedKeys: the template with a key that Consul refuses fails and names it; those
// with other keys are rendered and follow them, also where one query fetches them together.
func TestRefusedKeys(t *testing.T) {
	t.Parallel()
	for way, test := range refusing(newSharedHost(t)) {
		for _, connections := range []int{64, 8} { // a query for each key; groups
			t.Run(fmt.Sprintf("%s, %d connections", way, connections), func(t *testing.T) {
				t.Parallel()
				h := newSharedHost(t)
				conf := test.conf
				conf.MaxConnections = connections
				client := h.through(conf)
				log := &logged{}
				edit := h.edit
				h.edit = func(o *watch.Options) { edit(o); o.Log = hclog.New(&hclog.LoggerOptions{Output: log}) }
				var all []config.Template
				for i := range 12 {
					h.put(fmt.Sprintf("app/k%d", i), "1")
					all = append(all, h.tmpl(fmt.Sprintf("good%d", i), fmt.Sprintf(`{{ key "app/k%d" }}`, i)))
				}
				for _, dot := range []string{".x", ".y", "b,1", "b,2"} { // what they share may be no name
					h.put("app/"+dot, "1")
					all = append(all, h.tmpl("good"+dot, `{{ key "app/`+dot+`" }}`))
				}
				for i, r := range test.keys {
					h.server.Plant(h.prefix+r.key, "stored")
					contents := fmt.Sprintf("{{ %s `%s` }}", r.function, h.prefix+r.key)
					if r.function == "keyOrDefault" {
						contents = fmt.Sprintf(`{{ keyOrDefault %q "none" }}`, h.prefix+r.key)
					}
					all = append(all, h.tmpl(fmt.Sprintf("bad%d", i), contents))
				}
				e, stop := h.run(all...)
				for i, r := range test.keys {
					name := fmt.Sprintf("bad%d", i)
					s := wantStatus(t, e, name, "to fail", inState(watch.StateFailed))
					if !strings.Contains(s.Error, fmt.Sprintf("%q", h.prefix+r.key)) || !strings.Contains(s.Error, "refused by Consul") {
						t.Errorf("%s, with %q: its error is %q", name, r.key, s.Error)
					}
				}
				for i := range 12 {
					h.want(fmt.Sprintf("good%d", i), "1")
				}
				for _, dot := range []string{".x", ".y", "b,1", "b,2"} {
					h.want("good"+dot, "1")
				}
				h.put("app/k0", "2")
				h.put("app/.y", "2")
				h.want("good0", "2")
				h.want("good.y", "2")
				stop()
				for i, r := range test.keys {
					name := fmt.Sprintf("bad%d", i)
					if s := status(e, name); s.Writes != 0 || s.State != watch.StateFailed {
						t.Errorf("%s, with %q: %+v", name, r.key, s)
					}
					if !strings.Contains(log.String(), "template="+name) {
						t.Errorf("the log does not name %s:\n%s", name, log)
					}
				}
				if st := client.Stats(); st.Failures != 0 || strings.Contains(log.String(), "does not answer") {
					t.Errorf("a refusal counts as an outage: %+v\n%s", st, log)
				}
			})
		}
	}
}

func status(e *watch.Engine, name string) (found watch.Status) {
	for _, s := range e.Status() {
		if s.Name == name {
			found = s
		}
	}
	return found
}

// TestRefusedKeyOnce: rendering once does not wait for a key that Consul refuses.
func TestRefusedKeyOnce(t *testing.T) {
	t.Parallel()
	h := newSharedHost(t)
	h.through(h.server.Strict().Config())
	h.put("good", "1")
	err := h.once(h.tmpl("good", `{{ key "good" }}`), h.tmpl("bad", `{{ key "v1+b" }}`), h.tmpl("both", `{{ key "good" }}{{ key "v1+b" }}`))
	h.want("good", "1")
	if err == nil || errors.Is(err, consul.ErrUnreachable) {
		t.Fatalf("Once = %v", err)
	}
	for _, part := range []string{`template "bad"`, `template "both"`, "v1+b", "refused by Consul"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("Once = %v; want %s in it", err, part)
		}
	}
	if strings.Contains(err.Error(), `template "good"`) {
		t.Errorf("Once = %v", err)
	}
}

// TestRefusedKeyIsTaken: once another Consul answers, which takes the key, the template is
// rendered; and the file of one that was rendered stays while Consul refuses its key.
func TestRefusedKeyIsTaken(t *testing.T) {
	t.Parallel()
	h := newSharedHost(t)
	h.put("v1-b", "1")
	p := h.server.Proxy()
	h.through(p.Config())
	e, _ := h.run(h.tmpl("f", `{{ key "v1-b" }}`))
	h.want("f", "1")
	p.WaitBlocking("/v1/kv/" + h.prefix + "v1-b")
	p.Do(consultest.RefuseName(h.prefix + "v1-b"))
	h.put("v1-b", "2") // ends it; the next one is refused
	h.want("f", "2")
	s := wantStatus(t, e, "f", "to be stale", inState(watch.StateStale))
	if len(s.Stale) != 1 || !strings.Contains(s.Stale[0], "v1-b") || !strings.Contains(s.Stale[0], "refused by Consul") || s.Since.IsZero() || s.Error != "" {
		t.Errorf("%+v", s)
	}
	unchanged := h.frozen("f")
	h.put("v1-b", "3")
	unchanged()
	p.Do(nil)
	h.want("f", "3")
}

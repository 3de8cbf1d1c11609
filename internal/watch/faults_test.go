package watch_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/watch"
)

// through makes h's engines, but not h itself, use a client of conf.
func (h *host) through(conf config.Consul) *consul.Client {
	h.t.Helper()
	c, err := consul.New(conf)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(c.Close)
	h.edit = func(o *watch.Options) { o.Client, o.Consul = c, conf }
	return c
}

// frozen returns a function that reports whether the files are unchanged.
func (h *host) frozen(names ...string) func() {
	h.t.Helper()
	before := map[string]os.FileInfo{}
	for _, n := range names {
		info, err := os.Stat(h.path(n))
		if err != nil {
			h.t.Fatal(err)
		}
		before[n] = info
	}
	return func() {
		h.t.Helper()
		for n, was := range before {
			if now, err := os.Stat(h.path(n)); err != nil || !os.SameFile(was, now) || !was.ModTime().Equal(now.ModTime()) {
				got, _ := os.ReadFile(h.path(n))
				h.t.Errorf("%s was touched (%v): %q", n, err, got)
			}
		}
	}
}

// lacks makes sure that no file is empty, or holds text.
func (h *host) lacks(text string, names ...string) {
	h.t.Helper()
	for _, n := range names {
		if got, err := os.ReadFile(h.path(n)); err != nil || len(got) == 0 || strings.Contains(string(got), text) {
			h.t.Errorf("%s holds %q (%v)", n, got, err)
		}
	}
}

// stale waits until every template says that its data is not up to date.
func (h *host) stale(e *watch.Engine, what string, names ...string) {
	h.t.Helper()
	for _, n := range names {
		wantStatus(h.t, e, n, "stale: "+what, func(s watch.Status) bool { return mentions(s.Stale, what) })
	}
}

// mixed is a set of templates that use most sources.
func (h *host) mixed() ([]config.Template, []string) {
	list := []config.Template{
		h.tmpl("key", `{{ key "app/name" }}`),
		h.tmpl("default", `{{ keyOrDefault "app/name" "none" }}`),
		h.tmpl("exists", `{{ keyExists "app/name" }}`),
		h.tmpl("tree", `{{ range tree "app/" }}{{ .Key }}={{ .Value }};{{ end }}`),
		h.tmpl("web", `{{ range service "web" }}{{ .Port }};{{ end }}`, func(c *config.Template) { c.EmptyAfter = time.Hour }),
		h.tmpl("any", `{{ range service "web|any" }}{{ .Port }};{{ end }}`, func(c *config.Template) { c.AllowEmpty = true }),
		h.tmpl("services", `{{ range services }}{{ if ne .Name "consul" }}{{ .Name }};{{ end }}{{ end }}`, func(c *config.Template) { c.AllowEmpty = true }),
		h.tmpl("nodes", `{{ range nodes }}{{ if eq .Node "web-node-1" }}{{ .Address }}{{ end }}{{ end }}`),
		h.tmpl("node", `{{ with node "web-node-1" }}{{ .Node.Address }}{{ end }}`),
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return list, names
}

func (h *host) wantMixed(value string) {
	h.t.Helper()
	for name, want := range map[string]string{
		"key": value, "default": value, "exists": "true", "tree": "name=" + value + ";", "web": "8001;", "any": "8001;",
		"services": "web;", "nodes": "10.0.0.1", "node": "10.0.0.1",
	} {
		h.want(name, want)
	}
}

// stir ends the queries that wait for a change of what mixed uses; queries that
// are on their way already may still be answered.
func (h *host) stir() {
	h.t.Helper()
	h.put("app/name", fmt.Sprint(time.Now().UnixNano()))
	h.register("web", 1, consul.HealthWarning)
	h.register("web", 1, consul.HealthPassing)
}

func TestConsulStopsAndComesBack(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.Persistent())
	h := newHost(t, s)
	h.put("app/name", "one")
	h.register("web", 1, consul.HealthPassing)
	templates, names := h.mixed()
	e, _ := h.run(templates...)
	h.wantMixed("one")
	untouched := h.frozen(names...)
	for range 2 {
		s.Stop()
		h.stale(e, "could not be reached", names...)
		s.Restart()
		h.put("other", "x")
		for _, n := range names {
			wantStatus(t, e, n, "up to date", func(s watch.Status) bool { return len(s.Stale) == 0 })
		}
	}
	untouched()
	h.put("app/name", "two")
	h.wantMixed("two")
}

// doubting makes an engine doubt what a reset has lost for longer than a test takes.
func doubting(o *watch.Options) { o.Doubt = time.Hour }

// A Consul that comes back empty changes no file before the doubt has passed,
// neither of an engine that has run all the time nor of one that starts only then.
func TestConsulComesBackEmpty(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	h := newHost(t, s)
	h.edit = doubting
	for i := range 50 {
		h.put("app/name", fmt.Sprint(i)) // an index well above that of an empty Consul
	}
	h.put("app/name", "one")
	h.register("web", 1, consul.HealthPassing)
	for i := range 500 {
		h.put("filler", fmt.Sprint(i))
	}
	h.put("app/name", "one again")
	templates, names := h.mixed()
	_, stop := h.run(templates...)
	h.wantMixed("one again")
	late := newHost(t, s)
	late.edit = doubting
	lateTemplates, _ := late.mixed()
	_, stopLate := late.run(lateTemplates...)
	late.wantMixed("one again")
	stopLate()
	untouched, lateUntouched := h.frozen(names...), late.frozen(names...)
	stop()
	e, _ := h.run(templates...)
	for _, n := range names {
		wantStatus(t, e, n, "rendered", inState(watch.StateRendered))
	}
	s.Kill()
	h.stale(e, "could not be reached", names...)
	s.Restart()
	le, _ := late.run(lateTemplates...)
	h.stale(e, "lost something", names...)
	for _, n := range names {
		if n == "services" || n == "nodes" {
			continue // what they list never was empty: Consul itself is in it
		}
		wantStatus(t, le, n, "in doubt", func(s watch.Status) bool { return mentions(s.Waiting, "lost something") || s.State == watch.StateHeld })
	}
	untouched()
	lateUntouched()
	h.put("app/name", "two")
	h.register("web", 1, consul.HealthPassing)
	h.wantMixed("two")
	late.wantMixed("two")
}

func TestConsulIsRestored(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.Persistent())
	h := newHost(t, s)
	h.edit = doubting
	h.put("k", "old")
	file := filepath.Join(t.TempDir(), "snapshot")
	s.Run("snapshot", "save", file)
	for i := range 100 {
		h.put("k", fmt.Sprint(i))
	}
	h.put("late", "x")
	e, _ := h.run(h.tmpl("k", `{{ key "k" }}`), h.tmpl("late", `{{ keyOrDefault "late" "none" }}`), h.tmpl("tree", `{{ range tree "" }}{{ end }}{{ range tree "la" }}{{ .Value }}{{ end }}`))
	h.want("k", "99")
	h.want("late", "x")
	h.want("tree", "x")
	untouched := h.frozen("late", "tree")
	s.Run("snapshot", "restore", file)
	h.want("k", "old")
	h.stale(e, "lost something", "late", "tree")
	untouched()
	h.put("k", "new")
	h.put("late", "y")
	h.want("k", "new")
	h.want("late", "y")
	h.want("tree", "y")
}

// TestAdditionsAfterAReset: what a Consul that came back empty, or was restored,
// holds appears at once, while what it lacks stays.
func TestAdditionsAfterAReset(t *testing.T) {
	t.Parallel()
	for name, reset := range map[string]func(t *testing.T, s *consultest.Server){
		"empty": func(_ *testing.T, s *consultest.Server) {
			s.Stop()
			s.Wipe()
			s.Restart()
		},
		"restored": func(t *testing.T, s *consultest.Server) {
			s.Run("snapshot", "restore", filepath.Join(filepath.Dir(t.TempDir()), "empty"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := consultest.Start(t, consultest.Persistent())
			h := newHost(t, s)
			h.edit = doubting
			s.Run("snapshot", "save", filepath.Join(filepath.Dir(t.TempDir()), "empty"))
			for i := range 500 {
				h.put("filler", fmt.Sprint(i)) // an index well above that of the reset Consul
			}
			h.put("app/b", "old")
			h.put("app/c", "old")
			h.register("web", 2, consul.HealthPassing)
			templates := []config.Template{
				h.tmpl("tree", `{{ range tree "app/" }}{{ .Key }}={{ .Value }};{{ end }}`),
				h.tmpl("web", `{{ range service "web" }}{{ .Port }};{{ end }}`),
				h.tmpl("names", `{{ range services }}{{ if ne .Name "consul" }}{{ .Name }};{{ end }}{{ end }}`),
			}
			e, _ := h.run(templates...)
			h.want("tree", "b=old;c=old;")
			h.want("web", "8002;")
			h.want("names", "web;")
			reset(t, s)
			h.stale(e, "lost something", "tree", "web", "names")
			h.put("app/a", "new")
			h.put("app/c", "new")
			h.register("web", 1, consul.HealthPassing)
			h.register("cache", 1, consul.HealthPassing)
			h.want("tree", "a=new;b=old;c=new;")
			h.want("web", "8001;8002;")
			h.want("names", "cache;web;")
			h.stale(e, "lost something", "tree", "web")
		})
	}
}

func TestBadAnswersChangeNothing(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	p := s.Proxy()
	h := newHost(t, s)
	h.through(p.Config())
	h.put("app/name", "0")
	h.register("web", 1, consul.HealthPassing)
	templates, names := h.mixed()
	e, _ := h.run(templates...)
	h.wantMixed("0")
	for i, tt := range []struct {
		fault consultest.Fault
		says  string
	}{
		{consultest.Fault{Status: http.StatusTooManyRequests}, "rate limited"},
		{consultest.Fault{Status: http.StatusInternalServerError}, "could not be reached"},
		{consultest.Fault{Status: http.StatusForbidden}, "denied"},
		{consultest.Fault{Cut: 10}, "could not be reached"},
		{consultest.Fault{Cut: 200}, ""},
	} {
		p.Do(func(*http.Request) consultest.Fault { return tt.fault })
		h.stir()
		if tt.says != "" {
			h.stale(e, tt.says, "key", "default", "exists", "tree", "web", "any")
		}
		asked := p.Asked("/")
		h.put("app/name", fmt.Sprint(i, "x"))
		consultest.Eventually(t, "more questions", func(context.Context) error {
			if p.Asked("/") < asked+5 {
				return errNotYet
			}
			return nil
		})
		if tt.says != "" {
			h.lacks(fmt.Sprint(i, "x"), names...)
		}
		p.Do(nil)
		h.wantMixed(fmt.Sprint(i, "x"))
	}
}

func TestConsulIsFrozen(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	h := newHost(t, s)
	h.put("a", "1")
	_, stop := h.run(h.tmpl("a", `{{ key "a" }}`), h.tmpl("b", `{{ key "a" }}`))
	h.want("a", "1")
	h.want("b", "1")
	stop()
	if err := os.Remove(h.path("b")); err != nil {
		t.Fatal(err)
	}
	untouched := h.frozen("a")
	s.Freeze()
	e, _ := h.run(h.tmpl("a", `{{ key "a" }}`), h.tmpl("b", `{{ key "a" }}`), h.tmpl("c", `{{ key "c" }}`))
	h.want("b", "1") // of the snapshot: it is not there
	wantStatus(t, e, "c", "waiting", func(s watch.Status) bool { return s.State == watch.StateWaiting && len(s.Waiting) > 0 })
	untouched()
	s.Thaw()
	h.put("a", "2")
	h.put("c", "3")
	h.want("a", "2")
	h.want("b", "2")
	h.want("c", "3")
}

func TestColdStartWithoutConsul(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.Persistent())
	h := newHost(t, s)
	h.put("a", "1")
	h.put("deep", "web")
	h.register("web", 1, consul.HealthPassing)
	hour := func(c *config.Template) { c.EmptyAfter = time.Hour }
	set := func(text string) []config.Template {
		return []config.Template{
			h.tmpl("there", `{{ key "a" }}`), h.tmpl("gone", `{{ key "a" }}`), h.tmpl("changed", `{{ key "a" }}`+text),
			h.tmpl("nested", `{{ range service (key "deep") }}{{ .Port }}{{ end }}`, hour),
			h.tmpl("held", `{{ range service "web" }}{{ .Port }}{{ end }}`, hour), h.tmpl("new", `{{ key "never" }}`),
		}
	}
	e, stop := h.run(set("")...)
	for n, want := range map[string]string{"there": "1", "gone": "1", "changed": "1", "nested": "8001", "held": "8001"} {
		h.want(n, want)
	}
	h.deregister("web", 1)
	wantStatus(t, e, "held", "held", inState(watch.StateHeld))
	wantStatus(t, e, "nested", "held", inState(watch.StateHeld))
	stop()
	s.Kill()
	for range 2 { // the second time with what the first has saved
		for _, n := range []string{"gone", "nested", "held"} {
			if err := os.Remove(h.path(n)); err != nil {
				t.Fatal(err)
			}
		}
		untouched := h.frozen("there")
		e, stop = h.run(set("!")...)
		h.want("gone", "1")
		h.want("changed", "1!")
		h.want("nested", "8001") // the guard had not let go of them
		h.want("held", "8001")
		untouched()
		for _, n := range []string{"there", "new"} {
			wantStatus(t, e, n, "waiting", func(s watch.Status) bool { return s.State == watch.StateWaiting && len(s.Waiting) == 1 })
		}
		stop()
	}
	e, _ = h.run(set("!")...)
	s.Restart()
	h.put("a", "2")
	h.want("there", "2")
	h.want("gone", "2")
	h.want("changed", "2!")
	wantStatus(t, e, "held", "held", inState(watch.StateHeld))
	h.register("web", 2, consul.HealthPassing)
	h.want("held", "8002")
	h.want("nested", "8002")
}

func TestStartBeforeConsul(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	h := newHost(t, s)
	s.Kill()
	templates, names := h.mixed()
	e, _ := h.run(templates...)
	for _, n := range names {
		wantStatus(t, e, n, "waiting", func(s watch.Status) bool {
			return s.State == watch.StateWaiting && mentions(s.Waiting, "could not be reached")
		})
	}
	if files, err := os.ReadDir(h.dir); err != nil || len(files) > 0 {
		t.Errorf("files without data: %v, %v", files, err)
	}
	s.Restart()
	h.put("app/name", "one")
	h.register("web", 1, consul.HealthPassing)
	h.wantMixed("one")
}

func TestLeaderIsLost(t *testing.T) {
	t.Parallel()
	servers := consultest.StartCluster(t, 3)
	h := newHost(t, servers[0])
	h.put("app/name", "one")
	h.register("web", 1, consul.HealthPassing)
	templates, names := h.mixed()
	e, _ := h.run(templates...)
	h.wantMixed("one")
	untouched := h.frozen(names...)
	servers[1].Kill()
	servers[2].Kill()
	h.stale(e, "could not be reached", names...)
	untouched()
	servers[1].RestartNoWait()
	servers[2].RestartNoWait()
	consultest.Eventually(t, "a leader", func(ctx context.Context) error {
		return h.client.KVPut(ctx, &consul.KVPair{Key: "app/name", Value: []byte("two")})
	})
	h.wantMixed("two")
}

func TestTokenLosesItsRights(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	h := newHost(t, s)
	all := `key_prefix "" { policy = "read" } service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }`
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first := s.NewToken(all)
	write(first)
	conf := s.Config()
	conf.Token, conf.TokenFile = "", file
	c := h.through(conf)
	h.put("app/name", "0")
	h.register("web", 1, consul.HealthPassing)
	templates, names := h.mixed()
	e, _ := h.run(templates...)
	h.wantMixed("0")
	for i, test := range []struct {
		token func() string
		why   string
	}{
		{func() string { s.DeleteToken(first); return first }, "denied"},
		{func() string { return s.NewToken(`key_prefix "other" { policy = "read" }`) }, "denied"},
		{func() string { return "00000000-0000-0000-0000-000000000000" }, "denied"},
		{func() string { return "" }, "no token"},
	} {
		write(test.token())
		h.stir()
		h.stale(e, test.why, "key", "default", "exists", "tree", "web", "any")
		h.put("app/name", fmt.Sprint("new", i))
		failures := c.Stats().LastAnswer
		consultest.Eventually(t, "more answers", func(context.Context) error {
			if !c.Stats().LastAnswer.After(failures) {
				return errNotYet
			}
			return nil
		})
		h.lacks(fmt.Sprint("new", i), names...)
		write(s.NewToken(all))
		h.wantMixed(fmt.Sprint("new", i))
	}
}

// Keys of a group are read together, but one that may not be read is alone
// with its trouble, however the group is read.
func TestOneForbiddenKeyAmongMany(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	for name, extra := range map[string]int{"whole": 0, "wide": 900} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, s)
			var templates []config.Template
			var ops consul.TxnOps
			put := func(key, value string) {
				ops = append(ops, &consul.TxnOp{KV: &consul.KVTxnOp{Verb: consul.KVSet, Key: key, Value: []byte(value)}})
				if len(ops) == 64 {
					h.txn(ops)
					ops = nil
				}
			}
			flush := func() { h.txn(ops); ops = nil }
			const n = 80
			for i := range n {
				put(fmt.Sprintf("%s/k-%03d", name, i), "1")
				templates = append(templates, h.tmpl(fmt.Sprint(i), fmt.Sprintf(`{{ key "%s/k-%03d" }}`, name, i)))
			}
			for i := range extra {
				put(fmt.Sprintf("%s/k-%03d-more", name, i), "x")
			}
			put(name+"/k-000-secret", "s")
			flush()
			templates = append(templates, h.tmpl("secret", fmt.Sprintf(`{{ keyOrDefault "%s/k-000-secret" "none" }}`, name)),
				h.tmpl("absent", fmt.Sprintf(`{{ keyOrDefault "%s/k-001-absent" "none" }}`, name)))
			conf := s.Config()
			conf.Token = config.Secret(s.NewToken(fmt.Sprintf(`key_prefix "%s/" { policy = "read" } key "%s/k-000-secret" { policy = "deny" }`, name, name)))
			conf.MaxConnections = 20 // few groups
			h.through(conf)
			e, _ := h.run(templates...)
			h.want("absent", "none")
			for i := range n {
				h.want(fmt.Sprint(i), "1")
			}
			wantStatus(t, e, "secret", "denied", func(s watch.Status) bool { return mentions(s.Waiting, "denied") })
			for i := range n {
				put(fmt.Sprintf("%s/k-%03d", name, i), "2")
			}
			flush()
			for i := range n {
				h.want(fmt.Sprint(i), "2")
			}
			if _, err := os.Stat(h.path("secret")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a file was made of a key that may not be read: %v", err)
			}
		})
	}
}

func (h *host) txn(ops consul.TxnOps) {
	h.t.Helper()
	if len(ops) == 0 {
		return
	}
	if ok, resp, err := h.client.Txn(context.Background(), "test", ops); !ok || err != nil {
		h.t.Fatal(ok, resp, err)
	}
}

func TestValuesAtTheLimits(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	big := strings.Repeat("0123456789abcdef", 512<<10/16)
	binary := "\x00\xff\xfe\r\n\x80\x1b[31m"
	keys := map[string]string{
		"a b": "1", "a%20b": "2", "a#b": "3", "ü/ö": "4", "x=y&z": "6", "a:b|c~d": "7", "\xff\xfe": "8", "a\\b\"c": "9", "{{a}}": "10",
	}
	h.put("limits/big", big)
	h.put("limits/binary", binary)
	templates := []config.Template{
		h.tmpl("big", `{{ key "limits/big" }}`), h.tmpl("binary", `{{ key "limits/binary" }}`),
		h.tmpl("tree", `{{ range tree "limits" }}{{ .Value }}{{ end }}`),
	}
	names, refused := map[string]string{}, map[string]string{} // file → value; file → key that this Consul does not read
	for k, v := range keys {
		name := "odd" + v
		if h.server.Refuses("odd/" + k) {
			refused[name] = "odd/" + k
			h.server.Plant(h.prefix+"odd/"+k, v)
		} else {
			names[name] = v
			h.put("odd/"+k, v)
		}
		templates = append(templates, h.tmpl(name, fmt.Sprintf("{{ key %q }}", "odd/"+k)))
	}
	e, stop := h.run(templates...)
	h.want("big", big)
	h.want("binary", binary)
	h.want("tree", big+binary)
	for name, v := range names {
		h.want(name, v)
	}
	for name, key := range refused {
		wantStatus(t, e, name, fmt.Sprintf("Consul's refusal of %q", key), func(s watch.Status) bool {
			return s.State == watch.StateFailed && strings.Contains(s.Error, fmt.Sprintf("%q", key))
		})
	}
	h.put("limits/big", "")
	h.want("big", "")
	stop()
	untouched := h.frozen("binary", "big")
	e, _ = h.run(templates...)
	wantStatus(t, e, "binary", "rendered", inState(watch.StateRendered))
	untouched()
}

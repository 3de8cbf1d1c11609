package watch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/watch"
)

func TestASourceThatCannotBeParsed(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("k", "v")
	source := filepath.Join(t.TempDir(), "bad.ctmpl")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{{ range key "k" }}`)
	bad := h.tmpl("bad", "", func(c *config.Template) { c.Source = source })
	absent := h.tmpl("absent", "", func(c *config.Template) { c.Source = source + ".none" })
	unknown := h.tmpl("unknown", `{{ nonsense "k" }}`)
	for _, c := range []config.Template{bad, absent, unknown} {
		if err := watch.Check(&c); err == nil || !strings.Contains(err.Error(), c.Name) {
			t.Errorf("Check(%s) = %v; want what is wrong", c.Name, err)
		}
	}
	if _, err := watch.New(watch.Options{Client: h.client, Templates: []config.Template{h.tmpl("good", "x"), bad}}); err == nil || !strings.Contains(err.Error(), `"bad"`) {
		t.Errorf("New = %v; want which template it is", err)
	}
	h.edit = func(o *watch.Options) { o.LoadLater = true }
	e, _ := h.run(h.tmpl("good", `{{ key "k" }}`), bad, absent, unknown)
	h.want("good", "v")
	for name, says := range map[string]string{"bad": "unexpected EOF", "absent": "no such file", "unknown": "nonsense"} {
		wantStatus(t, e, name, "failed", func(s watch.Status) bool {
			return s.State == watch.StateFailed && strings.Contains(s.Error, says)
		})
	}
	write(`fixed {{ key "k" }}`)
	h.want("bad", "fixed v")
	h.put("k", "w")
	h.want("bad", "fixed w")
	h.want("good", "w")
}

func TestErrorsInsideNestedTemplates(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("n", "1")
	text := `{{ define "inner" }}{{ key "n" | parseInt | add 1 }}{{ end }}`
	e, _ := h.run(
		h.tmpl("template", text+`{{ template "inner" }}`), h.tmpl("execute", text+`[{{ executeTemplate "inner" | toUpper }}]`),
		h.tmpl("panics", `{{ key "n" | parseJSON | index }}{{ (index (parseJSON "[1]") (key "n" | parseInt)) }}`),
	)
	h.want("template", "2")
	h.want("execute", "[2]")
	wantStatus(t, e, "panics", "failed", inState(watch.StateFailed))
	h.put("n", "x")
	for _, name := range []string{"template", "execute"} {
		wantStatus(t, e, name, "failed", func(s watch.Status) bool {
			return s.State == watch.StateFailed && strings.Contains(s.Error, "parseInt") && !strings.Contains(s.Error, "\n")
		})
	}
	h.want("template", "2")
	h.put("n", "5")
	h.want("template", "6")
	h.want("execute", "[6]")
}

// A dependency that only another one names is found, followed, and let go of
// when it is no longer named.
func TestDependenciesComeAndGo(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("name", "one")
	h.register("one", 1, consul.HealthPassing)
	h.register("two", 2, consul.HealthPassing)
	h.put("more", strings.Repeat("x", 20))
	text := `{{ range service (key "name") }}{{ .Port }}{{ end }}{{ range $i := loop (key "more" | len) }}{{ keyOrDefault (printf "many/%d" $i) "" }}{{ end }}`
	e, _ := h.run(h.tmpl("t", text), h.tmpl("same", `{{ key "name" }}`))
	h.want("t", "8001")
	watches := func(what string, ok func(int) bool) {
		t.Helper()
		consultest.Eventually(t, what, func(context.Context) error {
			if n := h.client.Stats().Watches; !ok(n) {
				return fmt.Errorf("%d watches", n)
			}
			return nil
		})
	}
	watches("23 watches", func(n int) bool { return n == 23 })
	h.put("name", "two")
	h.want("t", "8002")
	h.put("more", "x")
	watches("four watches", func(n int) bool { return n == 4 })
	h.register("two", 3, consul.HealthPassing)
	h.want("t", "80028003")
	h.put("name", "three")
	wantStatus(t, e, "t", "waiting for three or without it", func(s watch.Status) bool { return s.Executions > 0 })
	h.register("three", 4, consul.HealthPassing)
	h.want("t", "8004")
	h.put("name", "one")
	h.want("t", "8001")
	h.want("same", "one")
}

func TestAnEndlessTemplateKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.edit = func(o *watch.Options) { o.Allow.RenderTimeout = time.Hour; o.Allow.MaxOutput = 1 << 30 }
	h.put("k", "1")
	e := h.engine(h.tmpl("endless", `{{ range loop 48000000 }}{{ range loop 1 }}{{ end }}{{ end }}`), h.tmpl("good", `{{ key "k" }}`))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	h.want("good", "1")
	h.put("k", "2")
	h.want("good", "2")
	for _, s := range e.Status() {
		if s.Name == "endless" && s.Executions > 0 {
			t.Error("the endless template has ended already: this proves nothing")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

func TestCommandsThatHangKeepNoOtherWaiting(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("k", "1")
	release := filepath.Join(t.TempDir(), "release")
	hang := []string{"sh", "-c", "until [ -e " + release + " ]; do sleep 0.05; done"}
	e, _ := h.run(
		h.tmpl("check", `{{ key "k" }}`, func(c *config.Template) { c.Check, c.CheckTimeout = hang, time.Hour }),
		h.tmpl("reload", `{{ key "k" }}`, func(c *config.Template) { c.Reload, c.ReloadTimeout = hang, time.Hour }),
		h.tmpl("timeout", `{{ key "k" }}`, func(c *config.Template) { c.Check, c.CheckTimeout = []string{"sleep", "3600"}, 50*time.Millisecond }),
		h.tmpl("plain", `{{ key "k" }}`),
	)
	for i := range 5 {
		h.put("k", fmt.Sprint(i))
		h.want("plain", fmt.Sprint(i))
	}
	wantStatus(t, e, "timeout", "failed", func(s watch.Status) bool {
		return s.State == watch.StateFailed && strings.Contains(s.Error, "sleep 3600")
	})
	if _, err := os.Stat(h.path("check")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there before its check has passed: %v", err)
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.want("check", "4")
	h.want("reload", "4")
	leftovers(t, h.dir)
}

// leftovers makes sure that nothing but the files themselves is in dir.
func leftovers(t *testing.T, dir string) {
	t.Helper()
	consultest.Eventually(t, "no file left over in "+dir, func(context.Context) error {
		list, err := os.ReadDir(dir)
		for _, f := range list {
			if strings.HasPrefix(f.Name(), ".") {
				err = errors.Join(err, fmt.Errorf("%s is there", f.Name()))
			}
		}
		return err
	})
}

func TestAReloadThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("k", "1")
	dir := t.TempDir()
	broken, loaded := filepath.Join(dir, "broken"), filepath.Join(dir, "loaded")
	// What is loaded is what the file held at the last reload that succeeded.
	reload := []string{"sh", "-c", fmt.Sprintf("cp %s %s; ! [ -e %s ]", h.path("f"), loaded, broken)}
	e, _ := h.run(h.tmpl("f", `{{ key "k" }}`, func(c *config.Template) { c.Reload = reload }))
	h.want("f", "1")
	wantStatus(t, e, "f", "rendered", inState(watch.StateRendered)) // its reload has ended
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.put("k", "2")
	s := wantStatus(t, e, "f", "failed", func(s watch.Status) bool { return s.State == watch.StateFailed && s.Executions > 0 })
	if !strings.Contains(s.Error, "sh") {
		t.Errorf("error = %q; want the command", s.Error)
	}
	h.want("f", "1")
	wantStatus(t, e, "f", "tried again", func(now watch.Status) bool { return now.Executions > s.Executions })
	h.want("f", "1")
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	h.want("f", "2")
	wantStatus(t, e, "f", "rendered", func(s watch.Status) bool { return s.State == watch.StateRendered && s.Error == "" })
	if got, err := os.ReadFile(loaded); err != nil || string(got) != "2" {
		t.Errorf("loaded is %q, %v; want what the file holds", got, err)
	}
	leftovers(t, h.dir)
}

func TestADirectoryThatComesLater(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("k", "1")
	e, _ := h.run(
		h.tmpl("later/f", `{{ key "k" }}`), h.tmpl("made/a/b/f", `{{ key "k" }}`, func(c *config.Template) { c.CreateDirs = true }),
		h.tmpl("good", `{{ key "k" }}`),
	)
	h.want("made/a/b/f", "1")
	h.want("good", "1")
	wantStatus(t, e, "later/f", "failed", func(s watch.Status) bool {
		return s.State == watch.StateFailed && strings.Contains(s.Error, "create_dirs")
	})
	if err := os.Mkdir(h.path("later"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.want("later/f", "1")
	if err := os.Rename(h.path("made"), h.path("moved")); err != nil { // at once: what is removed piece by piece returns meanwhile
		t.Fatal(err)
	}
	h.put("k", "2")
	h.want("made/a/b/f", "2")
	h.want("later/f", "2")
}

func TestLocalFilesAreFollowed(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	dir := filepath.Join(t.TempDir(), "conf")
	path := filepath.Join(dir, "f")
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	e, _ := h.run(h.tmpl("out", `{{ file "`+path+`" }}`), h.tmpl("jail", `{{ file "`+path+`" }}`, func(c *config.Template) { c.SandboxPath = h.dir }))
	wantStatus(t, e, "out", "waiting", func(s watch.Status) bool {
		return s.State == watch.StateWaiting && mentions(s.Waiting, "no such file")
	})
	wantStatus(t, e, "jail", "failed", inState(watch.StateFailed))
	for i := range 3 {
		write(fmt.Sprint("made ", i))
		h.want("out", fmt.Sprint("made ", i))
		write(fmt.Sprint("replaced ", i))
		h.want("out", fmt.Sprint("replaced ", i))
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		h.stale(e, "no such file", "out")
		h.want("out", fmt.Sprint("replaced ", i))
	}
	wantStatus(t, e, "jail", "failed", func(s watch.Status) bool { return s.State == watch.StateFailed })
}

func TestHeldAndRequired(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("k", "1")
	hold := filepath.Join(t.TempDir(), "hold")
	news := make(chan bool)
	h.edit = func(o *watch.Options) {
		o.Held = func() string {
			if _, err := os.Stat(hold); err == nil {
				return "maintenance by the test"
			}
			return ""
		}
		o.Require = func(ctx context.Context, r []config.Requires, changed func(bool, string)) error {
			if len(r) != 1 || r[0].Target != "db" {
				t.Errorf("required: %+v", r)
			}
			for {
				select {
				case ok := <-news:
					changed(ok, "needs db")
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
	}
	needs := func(c *config.Template) { c.Requires = []config.Requires{{Target: "db", Count: 1}} }
	e, _ := h.run(h.tmpl("free", `{{ key "k" }}`), h.tmpl("gated", `{{ key "k" }}`, needs))
	h.want("free", "1")
	wantStatus(t, e, "gated", "waiting", inState(watch.StateWaiting))
	news <- false
	wantStatus(t, e, "gated", "waiting for db", func(s watch.Status) bool { return mentions(s.Waiting, "needs db") })
	if _, err := os.Stat(h.path("gated")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("rendered before what it requires is there: %v", err)
	}
	news <- true
	h.want("gated", "1")
	news <- false
	h.put("k", "2")
	h.want("free", "2")
	h.want("gated", "1")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	news <- true
	h.put("k", "3")
	for _, name := range []string{"free", "gated"} {
		wantStatus(t, e, name, "held", func(s watch.Status) bool { return strings.Contains(s.Error, "maintenance by the test") })
	}
	if got, err := os.ReadFile(h.path("free")); err != nil || string(got) != "2" {
		t.Errorf("replaced while held: %q, %v", got, err)
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	h.want("free", "3")
	h.want("gated", "3")
}

// A series of changes without rest is one write, when it has come to rest or
// has lasted for long.
func TestWaitForQuiescence(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("k", "0")
	h.put("other", "0")
	wait := func(least, most time.Duration) func(*config.Template) {
		return func(c *config.Template) { c.Wait = config.Wait{Min: least, Max: most} }
	}
	edge := func(c *config.Template) { c.Together = "edge"; wait(time.Second, 0)(c) }
	e, _ := h.run(
		h.tmpl("calm", `{{ key "k" }}`, wait(time.Second, time.Hour)), h.tmpl("most", `{{ key "k" }}`, wait(time.Hour, time.Second)),
		h.tmpl("at-once", `{{ key "k" }}`), h.tmpl("edge-1", `{{ key "k" }}`, edge), h.tmpl("edge-2", `{{ key "other" }}`, edge),
	)
	names := []string{"calm", "most", "at-once", "edge-1", "edge-2"}
	for _, n := range names {
		h.want(n, "0")
	}
	before := map[string]watch.Status{}
	for _, s := range e.Status() {
		before[s.Name] = s
	}
	const changes = 20
	for i := 1; i <= changes; i++ {
		h.put("k", fmt.Sprint(i))
		h.put("other", fmt.Sprint(i))
		h.want("at-once", fmt.Sprint(i))
	}
	for _, n := range names {
		h.want(n, fmt.Sprint(changes))
	}
	for _, s := range e.Status() {
		writes := s.Writes - before[s.Name].Writes
		if most := uint64(changes / 2); s.Name != "at-once" && writes > most {
			t.Errorf("%s was written %d times for %d changes; want few", s.Name, writes, changes)
		}
		if s.Name == "at-once" && writes != changes {
			t.Errorf("%s was written %d times for %d changes", s.Name, writes, changes)
		}
	}
}

func TestOnceInAllItsEnds(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	h := newHost(t, s)
	h.put("k", "1")
	for name, tt := range map[string]struct {
		tmpl  config.Template
		waits []string // parts of what the status says before Once is ended; none: it ends by itself
		says  []string // of the error; none: no error
	}{
		"data": {h.tmpl("a", `{{ key "k" }}`), nil, nil},
		"none": {h.tmpl("b", ``), nil, nil},
		"missing": {
			h.tmpl("c", `{{ key "no/such" }}{{ range safeTree "none" }}{{ end }}`),
			[]string{"key no/such does not exist", "key prefix none holds no key"},
			[]string{`"c"`, "key no/such does not exist", "key prefix none holds no key", "canceled"},
		},
		"failing": {h.tmpl("d", `{{ key "k" | parseBool }}{{ index "x" "y" }}`), nil, []string{`"d"`, "index"}},
		"check":   {h.tmpl("e", `{{ key "k" }}`, func(c *config.Template) { c.Check = []string{"false"} }), nil, []string{`"e"`, "false"}},
		"least":   {h.tmpl("f", `{{ range service "none" }}{{ end }}`, func(c *config.Template) { c.MinInstances = map[string]int{"none": 1} }), []string{"min_instances"}, []string{`"f"`, "min_instances"}},
		"no file": {h.tmpl("g", `{{ file "/no/such/file" }}`), []string{"no such file"}, []string{`"g"`, "no such file"}},
	} {
		err := h.onceUntil(tt.tmpl, tt.waits...)
		if (err == nil) != (tt.says == nil) {
			t.Errorf("%s: Once = %v", name, err)
		}
		for _, text := range tt.says {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: Once = %v; want %q in it", name, err, text)
			}
		}
		_, serr := os.Stat(tt.tmpl.Destination)
		if (serr == nil) != (tt.says == nil) {
			t.Errorf("%s: the file: %v", name, serr)
		}
	}
	h.edit = func(o *watch.Options) { o.Held = func() string { return "a reason" } }
	if err := h.onceUntil(h.tmpl("held", "x"), "a reason"); err == nil || !strings.Contains(err.Error(), "a reason") {
		t.Errorf("held: Once = %v; want why", err)
	}
	h.edit = nil
	s.Kill()
	if err := h.onceUntil(h.tmpl("dead", `{{ key "k" }}`), "could not be reached"); err == nil || !strings.Contains(err.Error(), "could not be reached") {
		t.Errorf("without Consul: Once = %v; want why", err)
	}
}

func TestEnginesShareNothing(t *testing.T) {
	s := consultest.Start(t)
	h := newHost(t, s)
	h.put("k", "1")
	h.register("web", 1, consul.HealthPassing)
	before := runtime.NumGoroutine()
	templates, _ := h.mixed()
	for i := range 3 {
		templates = append(templates, h.tmpl(fmt.Sprint("same-", i), `{{ key "k" }}`), h.tmpl(fmt.Sprint("file-", i), `{{ file "/etc/hostname" }}{{ datacenters }}`))
	}
	for range 3 {
		e, stop := h.run(templates...)
		for i := range 3 {
			h.want(fmt.Sprint("same-", i), "1")
		}
		if err := e.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		stop()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.Ping(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Ping of an engine that has ended = %v", err)
		}
	}
	h.client.Close()
	consultest.Eventually(t, "goroutines to end", func(context.Context) error {
		h.client.Close()
		if n := runtime.NumGoroutine(); n > before+2 {
			buf := make([]byte, 1<<16)
			return fmt.Errorf("%d goroutines, before %d:\n%s", n, before, buf[:runtime.Stack(buf, true)])
		}
		return nil
	})
	if w := h.client.Stats().Watches; w != 0 {
		t.Errorf("%d watches are left", w)
	}
}

func TestForeignSourcesDoNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("k", "1")
	e, stop := h.run(h.tmpl("peers", `{{ range peerings }}{{ .Name }}{{ end }}none`), h.tmpl("secret", `{{ with secret "a/b" }}{{ .Data }}{{ end }}`), h.tmpl("k", `{{ key "k" }}`))
	h.want("k", "1")
	wantStatus(t, e, "secret", "waiting", func(s watch.Status) bool { return mentions(s.Waiting, "no Vault is configured") })
	wantStatus(t, e, "peers", "known", func(s watch.Status) bool { return s.State == watch.StateRendered || len(s.Waiting) > 0 })
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	consultest.Eventually(t, "the engine to end, whatever a foreign source waits for", func(context.Context) error {
		select {
		case <-stopped:
			return nil
		default:
			return errNotYet
		}
	})
}

package watch_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/watch"
)

func TestFilesFollowKeysAndServices(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("app/name", "one")
	h.register("web", 1, consul.HealthPassing)
	e, _ := h.run(
		h.tmpl("key", `{{ key "app/name" }}`),
		h.tmpl("default", `{{ keyOrDefault "app/absent" "none" }}`),
		h.tmpl("tree", `{{ range tree "app/" }}{{ .Key }}={{ .Value }};{{ end }}`),
		h.tmpl("web", `{{ range service "web" }}{{ .Address }}:{{ .Port }};{{ end }}`),
		h.tmpl("first", `{{ (index (service "web") 0).Port }}`),
	)
	h.want("key", "one")
	h.want("default", "none")
	h.want("tree", "name=one;")
	h.want("web", "10.0.0.1:8001;")
	h.want("first", "8001")
	h.put("app/name", "two")
	h.put("app/absent", "there")
	h.register("web", 2, consul.HealthPassing)
	h.register("web", 3, consul.HealthCritical)
	h.want("key", "two")
	h.want("default", "there")
	h.want("tree", "absent=there;name=two;")
	h.want("web", "10.0.0.1:8001;10.0.0.2:8002;")
	wantStatus(t, e, "web", "rendered", inState(watch.StateRendered))
	h.deregister("web", 1)
	h.want("web", "10.0.0.2:8002;")
	h.want("first", "8002")
}

func TestATemplateThatFailsFailsAlone(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("n", "x")
	e, _ := h.run(h.tmpl("bad", `{{ key "n" | parseInt }}`), h.tmpl("waits", `{{ key "later" }}`), h.tmpl("good", `{{ key "n" }}`))
	h.want("good", "x")
	s := wantStatus(t, e, "bad", "failed", inState(watch.StateFailed))
	if !strings.Contains(s.Error, "parseInt") {
		t.Errorf("error = %q; want the function that failed", s.Error)
	}
	s = wantStatus(t, e, "waits", "waiting", func(s watch.Status) bool {
		return s.State == watch.StateWaiting && mentions(s.Waiting, "key later does not exist")
	})
	h.put("n", "7")
	h.want("bad", "7")
	h.put("later", "now")
	h.want("waits", "now")
}

func TestEqualDataWritesNothing(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("a", "1")
	one := h.tmpl("f", `{{ key "a" }}`)
	e, stop := h.run(one)
	h.want("f", "1")
	before, err := os.Stat(h.path("f"))
	if err != nil {
		t.Fatal(err)
	}
	h.put("a", "1")
	h.put("b", "2")
	s := wantStatus(t, e, "f", "executed once with data", func(s watch.Status) bool { return s.State == watch.StateRendered })
	if s.Writes != 1 {
		t.Errorf("%d writes; want 1", s.Writes)
	}
	stop()
	e, _ = h.run(one)
	s = wantStatus(t, e, "f", "rendered again after a restart", inState(watch.StateRendered))
	after, err := os.Stat(h.path("f"))
	if err != nil || !os.SameFile(before, after) || s.Writes != 0 {
		t.Errorf("an unchanged file was replaced after a restart (%v)", err)
	}
}

func TestGuardHoldsAnEmptyService(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.register("web", 1, consul.HealthPassing)
	h.register("web", 2, consul.HealthPassing)
	list := `{{ range service "web" }}{{ .Port }} {{ end }}{{ keyOrDefault "k" "" }}`
	e, _ := h.run(
		h.tmpl("held", list, func(c *config.Template) { c.EmptyAfter = time.Hour }),
		h.tmpl("least", list, func(c *config.Template) { c.MinInstances = map[string]int{"web": 2} }),
		h.tmpl("shrink", list, func(c *config.Template) { c.MaxShrink, c.AllowEmpty = "50%", true }),
		h.tmpl("soon", list, func(c *config.Template) { c.EmptyAfter = 10 * time.Millisecond }),
		h.tmpl("allowed", list, func(c *config.Template) { c.AllowEmpty = true }),
	)
	for _, f := range []string{"held", "least", "shrink", "soon", "allowed"} {
		h.want(f, "8001 8002 ")
	}
	h.deregister("web", 1)
	h.want("held", "8002 ")
	h.want("shrink", "8002 ")
	s := wantStatus(t, e, "least", "held", inState(watch.StateHeld))
	if !mentions(s.Held, "min_instances is 2") {
		t.Errorf("held = %q", s.Held)
	}
	h.deregister("web", 2)
	h.want("allowed", "")
	h.want("soon", "")
	wantStatus(t, e, "held", "held", inState(watch.StateHeld))
	h.put("k", "x")
	h.want("held", "8002 x")
	h.want("least", "8001 8002 x")
	h.want("allowed", "x")
	h.register("web", 3, consul.HealthPassing)
	h.want("held", "8003 x")
	h.want("least", "8001 8002 x")
}

func TestGuardHoldsAServiceThatIsNoLongerRegistered(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.register("app", 1, consul.HealthPassing)
	h.register("web", 1, consul.HealthPassing)
	text := `{{ range services }}{{ if ne .Name "consul" }}{{ .Name }}:{{ range service .Name }}{{ .Port }}{{ end }} {{ end }}{{ end }}{{ keyOrDefault "k" "" }}`
	e, stop := h.run(
		h.tmpl("held", text, func(c *config.Template) { c.EmptyAfter = time.Hour }),
		h.tmpl("soon", text, func(c *config.Template) { c.EmptyAfter = 10 * time.Millisecond }),
	)
	h.want("held", "app:8001 web:8001 ")
	h.want("soon", "app:8001 web:8001 ")
	h.deregister("app", 1)
	h.want("soon", "web:8001 ")
	s := wantStatus(t, e, "held", "held", inState(watch.StateHeld))
	if !mentions(s.Held, "app is no longer registered") {
		t.Errorf("held = %q", s.Held)
	}
	stop()
	h.put("k", "x")
	h.run(h.tmpl("held", text, func(c *config.Template) { c.EmptyAfter = time.Hour }))
	h.want("held", "app:8001 web:8001 x")
}

func TestTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("a", "1")
	h.put("b", "1")
	edge := func(c *config.Template) { c.Together = "edge" }
	check := func(c *config.Template) { c.Check = []string{"grep", "-qv", "bad", "{{.Staged}}"} }
	e, _ := h.run(h.tmpl("a", `{{ key "a" }}`, edge), h.tmpl("b", `{{ key "b" }}`, edge, check))
	h.want("a", "1")
	h.want("b", "1")
	h.put("b", "bad")
	wantStatus(t, e, "b", "failed", inState(watch.StateFailed))
	h.put("a", "2")
	s := wantStatus(t, e, "a", "failed with b", inState(watch.StateFailed))
	if !strings.Contains(s.Error, "grep") {
		t.Errorf("error = %q; want the check that failed", s.Error)
	}
	h.want("a", "1")
	h.put("b", "2")
	h.want("a", "2")
	h.want("b", "2")
}

func TestOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.put("a", "1")
	if err := h.once(h.tmpl("a", `{{ key "a" }}`), h.tmpl("const", "x")); err != nil {
		t.Errorf("Once = %v", err)
	}
	h.want("a", "1")
	h.want("const", "x")
	err := h.once(h.tmpl("bad", `{{ key "a" | parseBool | parseInt }}`))
	if err == nil || !strings.Contains(err.Error(), `template "bad"`) {
		t.Errorf("Once with a bad template = %v", err)
	}
	err = h.onceUntil(h.tmpl("waits", `{{ key "never" }}`), "key never")
	if err == nil || !strings.Contains(err.Error(), "key never") {
		t.Errorf("Once with a missing key = %v; want what it waits for", err)
	}
}

func TestUnboundedTemplatesEnd(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.edit = func(o *watch.Options) { o.Allow.RenderTimeout = 200 * time.Millisecond; o.Allow.MaxOutput = 1 << 20 }
	endless := map[string]string{
		"range":   `{{ range loop 2000000000 }}{{ end }}`,
		"int":     `{{ range 2000000000 }}{{ end }}`,
		"text":    `{{ range 2000000000 }}some text{{ end }}`,
		"nested":  `{{ define "t" }}{{ template "t" }}{{ template "t" }}{{ end }}{{ template "t" }}`,
		"execute": `{{ define "t" }}{{ range loop 2000000000 }}{{ end }}{{ end }}{{ executeTemplate "t" }}`,
	}
	var templates []config.Template
	for name, text := range endless {
		templates = append(templates, h.tmpl(name, text))
	}
	e, _ := h.run(append(templates, h.tmpl("good", "x"))...)
	h.want("good", "x")
	for name := range endless {
		wantStatus(t, e, name, "failed", inState(watch.StateFailed))
	}
}

func TestManyKeysFewConnections(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	const n = 300
	var templates []config.Template
	names := make([]string, n)
	for i := range n {
		names[i] = "k" + strings.Repeat("x", i%3) + string(rune('a'+i%26)) + "-" + strings.Repeat("9", i%5) + time.Duration(i).String()
		h.put("many/"+names[i], "1")
		templates = append(templates, h.tmpl(names[i], `{{ key "many/`+names[i]+`" }}`))
	}
	h.run(templates...)
	for _, name := range names {
		h.want(name, "1")
	}
	for _, name := range names {
		h.put("many/"+name, "2")
	}
	for _, name := range names {
		h.want(name, "2")
	}
	if got := h.client.Stats(); got.Connections > 64 {
		t.Errorf("%d connections; want at most 64", got.Connections)
	}
}

func TestManyServicesShareAWakeUp(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	const n = 80
	var templates []config.Template
	name := func(i int) string { return "svc-" + string(rune('a'+i/26)) + string(rune('a'+i%26)) }
	for i := range n {
		h.register(name(i), 1, consul.HealthPassing)
		templates = append(templates, h.tmpl(name(i), `{{ range service "`+name(i)+`" }}{{ .Port }} {{ end }}`, func(c *config.Template) { c.AllowEmpty = true }))
	}
	h.run(templates...)
	for i := range n {
		h.want(name(i), "8001 ")
	}
	h.register(name(n-1), 2, consul.HealthPassing)
	h.want(name(n-1), "8001 8002 ")
	h.register(name(n-2), 1, consul.HealthCritical)
	h.want(name(n-2), "")
	h.deregister(name(n-3), 1)
	h.want(name(n-3), "")
	port := &consul.CatalogRegistration{
		Node: name(n-1) + "-node-1", Address: "10.0.0.1", SkipNodeUpdate: true,
		Service: &consul.AgentService{ID: name(n - 1), Service: name(n - 1), Port: 9000},
	}
	if err := h.client.CatalogRegister(t.Context(), port); err != nil {
		t.Fatal(err)
	}
	h.want(name(n-1), "9000 8002 ")
}

// TestManyServicesOfFewNodes: whatever changes of services that share a wake-up reaches the
// files, on as many nodes as have queries of their own, are searched, or are too many for that.
func TestManyServicesOfFewNodes(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 2, 10, 70} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			t.Parallel()
			h := newHost(t, consultest.Start(t)) // four agents may open more connections than one Consul allows
			const n = 80
			name := func(i int) string { return fmt.Sprintf("of-%d-%02d", nodes, i) }
			register := func(i, node, port int, status, address string) {
				t.Helper()
				r := &consul.CatalogRegistration{
					Node: fmt.Sprintf("host-%d-%02d", nodes, node), Address: address,
					Service: &consul.AgentService{ID: name(i), Service: name(i), Port: port},
				}
				if status != "" {
					r.Check = &consul.AgentCheck{Node: r.Node, CheckID: "c-" + name(i), Name: "c", Status: status, ServiceID: name(i)}
				}
				if err := h.client.CatalogRegister(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			var templates []config.Template
			for i := range n {
				register(i, i%nodes, 8000, consul.HealthPassing, "10.0.0.1")
				templates = append(templates, h.tmpl(name(i), `{{ range service "`+name(i)+`" }}{{ .Address }}:{{ .Port }} {{ end }}`,
					func(c *config.Template) { c.AllowEmpty = true }))
			}
			h.run(templates...)
			for i := range n {
				h.want(name(i), "10.0.0.1:8000 ")
			}
			register(1, 1%nodes, 8000, consul.HealthCritical, "10.0.0.1")
			h.want(name(1), "")
			register(1, 1%nodes, 8000, consul.HealthWarning, "10.0.0.1")
			register(2, 2%nodes, 8000, consul.HealthCritical, "10.0.0.1")
			h.want(name(2), "")
			register(1, 1%nodes, 8000, consul.HealthPassing, "10.0.0.1")
			h.want(name(1), "10.0.0.1:8000 ")
			register(3, 3%nodes, 9000, "", "10.0.0.1") // again, its checks are the same
			h.want(name(3), "10.0.0.1:9000 ")
			register(4, nodes, 7000, "", "10.0.0.2") // on a node that is new
			h.want(name(4), "10.0.0.1:8000 10.0.0.2:7000 ")
			register(4, nodes, 7001, "", "10.0.0.2")
			h.want(name(4), "10.0.0.1:8000 10.0.0.2:7001 ")
			gone := &consul.CatalogDeregister{Node: fmt.Sprintf("host-%d-%02d", nodes, 5%nodes), ServiceID: name(5)}
			if err := h.client.CatalogDeregister(t.Context(), gone); err != nil {
				t.Fatal(err)
			}
			h.want(name(5), "")
			register(0, 0, 8000, "", "10.0.0.9") // the node moves, and all services on it
			for i := 0; i < n; i += nodes {
				if i != 2 && i != 3 && i != 4 && i != 5 {
					h.want(name(i), "10.0.0.9:8000 ")
				}
			}
			if err := h.client.CatalogDeregister(t.Context(), &consul.CatalogDeregister{Node: fmt.Sprintf("host-%d-00", nodes)}); err != nil {
				t.Fatal(err)
			}
			for i := 0; i < n; i += nodes {
				if i != 4 {
					h.want(name(i), "")
				}
			}
		})
	}
}

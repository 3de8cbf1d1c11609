package watch_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/watch"
)

// consulTemplate is the program that jorc takes the place of.
func consulTemplate(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("CONSUL_TEMPLATE_BIN"); path != "" {
		return path
	}
	path := filepath.Join(consultest.Root(t), "bin", "consul-template")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no consul-template: run 'make bin/consul-template', or set CONSUL_TEMPLATE_BIN (%v)", err)
	}
	return path
}

// TestCompatibility renders templates as users have them with consul-template
// and with jorc, against the same Consul, again and again as its data changes.
func TestCompatibility(t *testing.T) {
	t.Parallel()
	program := consulTemplate(t)
	s := consultest.Start(t, consultest.WithConfig(map[string]any{"connect": map[string]any{"enabled": true}}))
	h := newHost(t, s)
	h.compatData()
	h.edit = func(o *watch.Options) {
		o.Allow.AllowEnv = []string{"COMPAT_*"}
		o.LookupEnv = func(name string) (string, bool) {
			if name == "COMPAT_SEEN" {
				return "seen", true
			}
			return "", false
		}
	}
	local := filepath.Join(t.TempDir(), "local")
	if err := os.WriteFile(local, []byte("a local file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("testdata/compat/*.ctmpl")
	if err != nil || len(sources) == 0 {
		t.Fatal("no templates", err)
	}
	theirs := t.TempDir()
	args := []string{"-once", "-log-level=err", "-consul-addr=" + s.HTTPAddr}
	var templates []config.Template
	var names []string
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, []byte("FILE"), []byte(local))
		name := filepath.Base(source)
		if err := os.WriteFile(filepath.Join(theirs, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-template="+filepath.Join(theirs, name)+":"+filepath.Join(theirs, name+".out"))
		names = append(names, name)
		templates = append(templates, h.tmpl(name, "", func(c *config.Template) {
			c.Source, c.AllowEmpty = filepath.Join(theirs, name), true
		}))
	}
	h.run(templates...)
	for i, change := range h.compatChanges() {
		change()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "COMPAT_SEEN=seen")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("consul-template: %v\n%s", err, out)
		}
		for _, name := range names {
			want, err := os.ReadFile(filepath.Join(theirs, name+".out"))
			if err != nil {
				t.Fatal(err)
			}
			consultest.Eventually(t, fmt.Sprintf("%s after change %d", name, i), func(context.Context) error {
				got, err := os.ReadFile(h.path(name))
				if err == nil && !bytes.Equal(got, want) {
					err = fmt.Errorf("jorc has\n%s\nconsul-template has\n%s", got, want)
				}
				return err
			})
		}
	}
}

// compatData fills Consul.
func (h *host) compatData() {
	h.t.Helper()
	for k, v := range map[string]string{
		"app": "root", "app/": "", "app/name": "one", "app/empty": "", "app/json": `{"b": [1, 2.5], "a": {"x": null}}`, "app/yaml": "a: 1\nb: [x, y]\n",
		"app/deep/": "", "app/deep/a/x": "1", "app/deep/a/y": "2", "app/deep/b/x/z": "3", "app/deep/c": "4", "application": "other", "haproxy/web/balance": "leastconn",
	} {
		h.put(k, v)
	}
	for i, status := range []string{consul.HealthPassing, consul.HealthPassing, consul.HealthWarning, consul.HealthCritical} {
		h.instance(i, status, 8000+i)
	}
	err := h.client.CatalogRegister(context.Background(), &consul.CatalogRegistration{
		Node: "n1", Address: "10.0.0.1", SkipNodeUpdate: true, Service: &consul.AgentService{ID: "db", Service: "db", Port: 5432, Tags: []string{}},
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// instance registers an instance of web with all that a template may show.
func (h *host) instance(i int, status string, port int) {
	h.t.Helper()
	node := fmt.Sprintf("n%d", i%3)
	id := fmt.Sprintf("web-%d", i)
	service := &consul.AgentService{
		ID: id, Service: "web", Port: port, Tags: []string{fmt.Sprintf("v%d", i%2+1), "http"},
		Meta:            map[string]string{"zone": fmt.Sprintf("z-%d", i%2), "shard": fmt.Sprint(i)},
		TaggedAddresses: map[string]consul.ServiceAddress{"eth0": {Address: "10.1.0.1", Port: port}},
		Weights:         consul.AgentWeights{Passing: i + 1, Warning: 1},
	}
	if i%2 == 0 {
		service.Address = fmt.Sprintf("192.168.0.%d", i)
	}
	err := h.client.CatalogRegister(context.Background(), &consul.CatalogRegistration{
		ID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i%3), Node: node, Address: fmt.Sprintf("10.0.0.%d", i%3), NodeMeta: map[string]string{"rack": fmt.Sprint(i % 3)},
		TaggedAddresses: map[string]string{"lan": "10.0.0.9", "wan": "1.2.3.4"}, Service: service,
		Check: &consul.AgentCheck{Node: node, CheckID: "check-" + id, Name: "alive", Status: status, ServiceID: id, Output: "says <" + status + ">"},
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) compatChanges() []func() {
	return []func(){
		func() {},
		func() { h.put("app/name", "two"); h.put("app/deep/d/e/f", "new"); h.put("app/empty", "full") },
		func() { h.instance(3, consul.HealthPassing, 9000) },
		func() { h.instance(4, consul.HealthPassing, 9001); h.instance(0, consul.HealthCritical, 8000) },
		func() { h.drop("app/deep/a"); h.put("app/name", strings.Repeat("three ", 100)) },
		func() {
			for i := range 5 {
				h.instance(i, consul.HealthCritical, 8000)
			}
		},
		func() { h.instance(1, consul.HealthPassing, 8001); h.put("haproxy/maxconn", "1024") },
	}
}

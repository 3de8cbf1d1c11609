//go:build system

package templates_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// hostileTexts are what one host registers so that the readers of rendered files do
// something else than to connect to it.
var hostileTexts = []string{
	`%{lookup('db::password')}`, `%%{}{lookup('db::password')}`, `%{alias("db::password")}`, `%{literal('%')}{lookup('db::password')}`,
	`10.0.0.6; } include /etc/passwd; upstream evil {`, "10.0.0.6\n    server evil 10.6.6.6:80", "10.0.0.6:80 down; #", `$remote_addr`, `${HOME}`, `"${HOME}"`, `$(id)`, "`id`",
	"unix:/run/evil.sock", "unix@/run/evil.sock", "fd@3", "abns@evil", "ipv4@10.0.0.6", "0", "0x0", "*",
	":symbol", "::1", "!!ruby/object:Gem::Installer {}", "!ruby/regexp /x/", "*alias", "&anchor x", "{a: b}", "[a]", "tRuE", "nUll", "~", "1,000", "0x1F", "1_0.5", "2001-02-31", "12:30:45", ".iNf", "- x", "a: b", "# x", "'", `"`,
	"{{ lookup('pipe', 'id') }}", "{% for x in y %}", "10.0.0.6/../x", "10.0.0.6?x=", "evil@10.0.0.6", "a b", "tab\there", "bell\a", "line\u2028end", "\U0001F4A5",
}

// hostile is a catalog with the good service web on the node good, and one host that
// registers hostileTexts in each place that it may choose.
func hostile(t *testing.T) *consultest.Server {
	t.Helper()
	s := consultest.Start(t)
	c := s.Client()
	tags := []string{"http", "metrics"}
	instance{node: "good", nodeAddress: "10.0.0.1", service: "web", port: 80, tags: tags}.register(t, c)
	for n, text := range hostileTexts {
		id := fmt.Sprint("evil-", n)
		meta := map[string]string{"metrics_port": text, "metrics_scheme": text, "__address__": "10.6.6.6:80", "__param_x": text}
		instance{node: "evil", nodeAddress: "10.0.0.6", service: "web", id: id, address: text, port: 80, tags: append(slices.Clone(tags), text), meta: meta}.register(t, c)
		instance{node: "evil", nodeAddress: "10.0.0.6", service: "faces", id: "face-" + id, port: 80, tagged: map[string]consul.ServiceAddress{
			text: {Address: "10.0.0.6"}, "x" + text: {Address: text},
		}}.register(t, c)
		instance{node: "evil", nodeAddress: "10.0.0.6", service: text, id: "name-" + id, port: 80, tags: tags}.register(t, c)
	}
	instance{node: "evil", nodeAddress: "10.0.0.6", service: "web", id: "::lan", port: 80, tagged: map[string]consul.ServiceAddress{"other::lan": {Address: "10.6.6.6"}}}.register(t, c)
	for n, name := range []string{"localhost", "good.node.consul", "web.service.consul", "evil # x", "ip6-localhost"} {
		instance{node: name, nodeAddress: fmt.Sprint("10.6.6.", n+10), service: "named", id: name, port: 80, tags: tags}.register(t, c)
	}
	for _, name := range []string{"..", ".", "../x", "a/../b"} {
		instance{node: "evil", nodeAddress: "10.0.0.6", service: name, id: "path-" + name, port: 80, tags: tags}.register(t, c)
	}
	return s
}

// export is what the command writes; it says at most one line of what is left out.
func export(t *testing.T, s *consultest.Server, format string) (data, leftOut string) {
	t.Helper()
	snapshot, err := catalog.Fetch(t.Context(), s.Client(), catalog.Functional, consul.Query{})
	if err != nil {
		t.Fatal(err)
	}
	text, left, err := catalog.Export(snapshot, format)
	if err != nil || strings.Contains(left.String(), "\n") || len(left.String()) > 400 {
		t.Fatalf("%v; left out: %s", err, left)
	}
	return string(text), left.String()
}

// onlyLines wants each line to be of one of these kinds, and at most so many comments.
func onlyLines(t *testing.T, text string, comments int, kinds ...string) {
	t.Helper()
	kind := regexp.MustCompile(`^(` + strings.Join(kinds, "|") + `|)$`)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "# left out:") {
			comments--
		} else if !kind.MatchString(line) && !strings.HasPrefix(line, "# Written by jorc") {
			t.Errorf("the line %q", line)
		}
	}
	if comments < 0 {
		t.Errorf("%d comments too many in:\n%s", -comments, text)
	}
}

// TestProxiesReadHostileCatalogs: nginx and haproxy accept what is rendered, which holds
// nothing but servers.
func TestProxiesReadHostileCatalogs(t *testing.T) {
	t.Parallel()
	s := hostile(t)
	for _, p := range []*proxy{newNginx(t), newHaproxy(t)} {
		for _, tag := range []string{`"http"`, `""`} {
			file := p.file
			file.Reload = nil // nothing runs
			file.Contents = set(t, file.Contents, "tag", `"http"`, tag)
			if err := engine(t, s, s.Client(), file).Once(t.Context()); err != nil {
				t.Errorf("%s, tag %s: %v", p.name, tag, err)
			}
			data, err := os.ReadFile(file.Destination)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(data), "10.0.0.1:80") {
				t.Errorf("%s: the good instance is missing in:\n%s", p.name, data)
			}
			// One comment for each service that exists, and one for services.
			onlyLines(t, string(data), 5, `upstream [A-Za-z0-9_-]+ \{`, `    server [0-9a-f.:\[\]]+( weight=[0-9]+)?;`, `    server 127\.0\.0\.1:1 down; # no instance`, `\}`,
				`backend [A-Za-z0-9_-]+`, `    (balance|option|default-server) .*`, `    server [A-Za-z0-9_.:-]+ [A-Za-z0-9_.:\[\]-]+:[0-9]+ weight [0-9]+`, `    # no instance`)
			if strings.Contains(string(data), " 0.0.0.0:") && p.name == "haproxy" {
				t.Errorf("haproxy would connect to itself:\n%s", data)
			}
		}
	}
}

// TestPuppetReadsHostileCatalogs: with the template's file and the export's, and through
// the lookup function, Puppet finds lists of the texts as they are, and nothing of other
// levels.
func TestPuppetReadsHostileCatalogs(t *testing.T) {
	t.Parallel()
	s := hostile(t)
	modules, err := filepath.Abs("../deploy/puppet")
	if err != nil {
		t.Fatal(err)
	}
	exported, leftOut := export(t, s, catalog.FormatHiera)
	if !strings.Contains(leftOut, "Hiera would evaluate") {
		t.Errorf("left out: %q", leftOut)
	}
	rendered := render(t, s, text(t, "hiera-services.yaml.ctmpl"))
	if strings.Count(rendered, "# left out:") != 1 {
		t.Errorf("not one comment in:\n%s", rendered)
	}
	for name, file := range map[string]string{"export": exported, "template": rendered} {
		for _, level := range []string{"data_hash: yaml_data", "lookup_key: jorc::service_lookup"} {
			t.Run(name+", "+level, func(t *testing.T) {
				t.Parallel()
				var want map[string][]string
				if err := yaml.Unmarshal([]byte(file), &want); err != nil {
					t.Fatal(err)
				}
				dir := t.TempDir()
				write(t, filepath.Join(dir, "services.yaml"), file)
				write(t, filepath.Join(dir, "common.yaml"), "db::password: geheim\n")
				write(t, filepath.Join(dir, "hiera.yaml"), fmt.Sprintf("version: 5\ndefaults: {datadir: %q, data_hash: yaml_data}\nhierarchy:\n"+
					"  - {name: services, %s, path: services.yaml}\n  - {name: common, path: common.yaml}\n", dir, level))
				keys := slices.Sorted(maps.Keys(want))
				keys = slices.DeleteFunc(keys, func(key string) bool { return strings.ContainsAny(key, `.'"`) }) // Hiera reads them as ways into values
				var found []string
				for _, key := range keys {
					quoted := "'" + strings.ReplaceAll(key, `\`, `\\`) + "'"
					found = append(found, quoted+" => lookup({'name' => "+quoted+"})")
				}
				write(t, filepath.Join(dir, "site.pp"), "file { '"+dir+"/found': content => jorc::to_json({"+strings.Join(found, ",\n")+"}) }\n")
				args := []string{"apply", "--modulepath=" + modules, "--hiera_config=" + filepath.Join(dir, "hiera.yaml"), "--color=false"}
				for _, kind := range []string{"conf", "var", "run", "log", "public"} {
					args = append(args, "--"+kind+"dir="+filepath.Join(dir, kind))
				}
				cmd := exec.CommandContext(t.Context(), "puppet", append(args, filepath.Join(dir, "site.pp"))...)
				cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LANG=C.UTF-8"}
				out, err := cmd.CombinedOutput()
				if err != nil || strings.Contains(string(out), "geheim") {
					t.Fatalf("puppet: %v\n%s", err, out)
				}
				data, err := os.ReadFile(filepath.Join(dir, "found"))
				if err != nil || strings.Contains(string(data), "geheim") {
					t.Fatalf("%v: %s\n%s", err, data, out)
				}
				var got map[string][]string
				if err := json.Unmarshal(data, &got); err != nil {
					t.Fatalf("not lists of texts: %v\n%s", err, data)
				}
				for _, key := range keys {
					if !slices.Equal(got[key], want[key]) {
						t.Errorf("%q is %q for Puppet, in the file %q", key, got[key], want[key])
					}
				}
				if got["services::other::lan"] != nil || !slices.Contains(got["services::web::lan"], "10.0.0.1") {
					t.Errorf("the keys %q", slices.Sorted(maps.Keys(got)))
				}
			})
		}
	}
}

// TestPrometheusReadsHostileCatalogs: Prometheus discovers the good target, and others
// with the labels that the templates give them.
func TestPrometheusReadsHostileCatalogs(t *testing.T) {
	t.Parallel()
	s := hostile(t)
	exported, leftOut := export(t, s, catalog.FormatPrometheus)
	if !strings.Contains(leftOut, "neither an IP address nor the name of a host") {
		t.Errorf("left out: %q", leftOut)
	}
	for name, file := range map[string]string{"export": exported, "template": render(t, s, text(t, "prometheus-file-sd.json.ctmpl"))} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "targets.json"), file)
		write(t, filepath.Join(dir, "prometheus.yml"), "scrape_configs: [{job_name: all, file_sd_configs: [{files: [targets.json]}]}]\n")
		cmd := exec.CommandContext(t.Context(), "promtool", "check", "service-discovery", "--timeout=5s", filepath.Join(dir, "prometheus.yml"), "all")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: promtool: %v\n%s", name, err, out)
		}
		var targets []struct {
			Discovered map[string]string `json:"discoveredLabels"`
			Labels     map[string]string // none: Prometheus refuses it
		}
		if err := json.Unmarshal(out, &targets); err != nil {
			t.Fatalf("%s: %v in %s", name, err, out)
		}
		good := false
		for _, target := range targets {
			good = good || target.Labels["instance"] == "10.0.0.1:80"
			if len(target.Labels) == 0 || target.Discovered["__address__"] == "10.6.6.6:80" || target.Discovered["__scheme__"] != "http" {
				t.Errorf("%s: the target %+v", name, target)
			}
		}
		if !good {
			t.Errorf("%s: the good target is missing in %s", name, out)
		}
	}
}

// TestHostsReadHostileCatalogs: the C library finds the good node, and its own names
// where they were.
func TestHostsReadHostileCatalogs(t *testing.T) {
	t.Parallel()
	s := hostile(t)
	exported, leftOut := export(t, s, catalog.FormatHosts)
	if leftOut == "" {
		t.Error("the export says nothing of what is left out")
	}
	rendered := render(t, s, text(t, "hosts.ctmpl"))
	onlyLines(t, rendered, 1, `[0-9a-f.:]+\t[A-Za-z0-9_. -]+`)
	onlyLines(t, exported, 0, `[0-9a-f.:]+\t[A-Za-z0-9_. -]+`)
	for name, file := range map[string]string{"template": rendered, "export": "127.0.0.1\tlocalhost\n" + exported} {
		path := filepath.Join(t.TempDir(), "hosts")
		write(t, path, file)
		for host, want := range map[string]string{"good.node.consul": "10.0.0.1", "good.node.dc1.consul": "10.0.0.1", "localhost": "127.0.0.1"} {
			if name == "template" && strings.Contains(host, "dc1") || name == "export" && host == "good.node.consul" {
				continue // the other one's
			}
			cmd := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-c", `mount --bind "$0" /etc/hosts && exec getent -s files ahostsv4 "$1"`, path, host)
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(out), "10.6.6.") || !strings.HasPrefix(string(out), want+" ") {
				t.Errorf("%s: %s is %s, %v; want %s", name, host, out, err, want)
			}
		}
	}
}

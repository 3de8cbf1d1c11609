package jorc_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// block is a fenced block of a document that says how it is tested, in a
// comment on the line before it: <!-- tested: KIND -->.
type block struct{ kind, text string }

var fenced = regexp.MustCompile("(?s)<!-- tested: (\\w+) -->\n```\\w*\n(.*?)```\n")

func blocks(t *testing.T, file string) []block {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []block
	for _, m := range fenced.FindAllStringSubmatch(string(data), -1) {
		list = append(list, block{kind: m[1], text: m[2]})
	}
	if len(list) == 0 {
		t.Fatalf("%s has no block that says <!-- tested: KIND -->", file)
	}
	return list
}

// TestDocuments does what the documents say: configurations are validated and
// run by an agent, and the commands of a newcomer succeed beside it.
func TestDocuments(t *testing.T) {
	t.Parallel()
	bin := buildJorc(t)
	for _, file := range []string{"README.md", "docs/templates.md", "docs/updates.md", "docs/orchestrator.md", "docs/rollouts.md", "docs/cluster.md", "docs/workflows.md", "docs/processes.md", "docs/stages.md", "docs/maintenance.md"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			d := newDocument(t, bin)
			for _, b := range blocks(t, file) {
				if b.kind == "template" {
					d.write("templates/upstreams.ctmpl", b.text)
				}
			}
			for _, b := range blocks(t, file) {
				switch b.kind {
				case "config", "trigger":
					d.config(b.text)
				case "shell":
					d.shell(b.text)
				}
			}
		})
	}
}

// document is a host on which a document is followed.
type document struct {
	t      *testing.T
	dir    string
	env    []string
	server *consultest.Server
	web    string // the address of the service that documents publish
}

func newDocument(t *testing.T, bin string) *document {
	t.Helper()
	s := consultest.Start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	d := &document{t: t, dir: t.TempDir(), server: s, web: listener.Addr().String()}
	d.env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + d.dir,
		"CONSUL_HTTP_ADDR=" + s.HTTPAddr, "JORC_DNS_ADDR=" + s.DNSAddr, "JORC_STATE_DIR=" + filepath.Join(d.dir, "state"), consultest.NoConfig,
	}
	for _, dir := range []string{"templates", "etc/nginx/conf.d", "etc/haproxy"} {
		if err := os.MkdirAll(filepath.Join(d.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.write("templates/backends.ctmpl", "x\n")
	return d
}

func (d *document) write(name, text string) string {
	d.t.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return path
}

// here puts the document's paths below its own directory and its programs
// within reach of the test.
func (d *document) here(text string) string {
	return strings.NewReplacer(
		"/etc/jorc", d.dir, `"/etc/nginx`, `"`+d.dir+"/etc/nginx", `"/etc/haproxy/backends`, `"`+d.dir+"/etc/haproxy/backends",
		"/usr/lib/checks/web.sh", "/bin/true", `"127.0.0.1:8080"`, strconv.Quote(d.web), `"systemctl", "reload", "nginx"`, `"true"`,
	).Replace(text)
}

// config validates a configuration; one with services is then run by an agent.
func (d *document) config(text string) {
	d.t.Helper()
	file := d.write("web.hcl", d.here(text)+"\nhttp { address = \"\" }\n")
	if out, err := d.command("jorc", "config", "validate", file).CombinedOutput(); err != nil {
		d.t.Fatalf("the configuration does not validate: %v\n%s", err, out)
	}
	if !strings.Contains(text, "service \"") {
		return
	}
	agent := d.command("jorc", "agent", "--config", file)
	agent.Cancel = func() error { return agent.Process.Signal(os.Interrupt) }
	if err := agent.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = agent.Wait() }) // the test's context has interrupted it
	consultest.Eventually(d.t, "the service of the document", func(context.Context) error {
		out, err := d.command("jorc", "service", "resolve", "web").CombinedOutput()
		if err == nil && len(out) == 0 {
			err = fmt.Errorf("not there yet")
		}
		return err
	})
}

// shell runs a block line by line, as an operator types it.
func (d *document) shell(text string) {
	d.t.Helper()
	for line := range strings.Lines(text) {
		if out, err := d.command("sh", "-c", d.here(line)).CombinedOutput(); err != nil {
			d.t.Errorf("%s: %v\n%s", strings.TrimSpace(line), err, out)
		}
	}
}

func (d *document) command(name string, args ...string) *exec.Cmd {
	if name == "jorc" {
		name = filepath.Join(strings.SplitN(strings.TrimPrefix(d.env[0], "PATH="), ":", 2)[0], "jorc")
	}
	cmd := exec.CommandContext(d.t.Context(), name, args...)
	cmd.Env = d.env
	return cmd
}

// buildJorc builds the program into a directory of its own.
func buildJorc(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	consultest.Build(t, dir, "cmd/jorc")
	return dir
}

var mentioned = regexp.MustCompile("`jorc ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)?(?: [a-z][a-z-]*)?)")

// TestCommandsInDocuments: each command that a document mentions is there.
func TestCommandsInDocuments(t *testing.T) {
	t.Parallel()
	bin := buildJorc(t)
	files, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := map[string]bool{}
	for _, file := range append(files, "README.md") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mentioned.FindAllStringSubmatch(string(data), -1) {
			if checked[m[1]] {
				continue
			}
			checked[m[1]] = true
			args := append(strings.Fields(m[1]), "--help")
			if out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "jorc"), args...).CombinedOutput(); err != nil {
				t.Errorf("%s mentions 'jorc %s': %v\n%s", file, m[1], err, out)
			}
		}
	}
	if len(checked) < 50 {
		t.Errorf("only %d commands were found", len(checked))
	}
}

// TestWarningCountsInDocuments: each text that explains what a functional instance
// is says that one with a warning counts, as commands have it
// (TestWhatAWaitLetsThroughIsFound in cmd/jorc).
func TestWarningCountsInDocuments(t *testing.T) {
	t.Parallel()
	for _, file := range []string{
		"docs/glossary.md", "docs/updates.md", "docs/workflows.md", "docs/puppet.md",
		"cmd/jorc/testdata/cli/jorc-wait.txt", "cmd/jorc/testdata/cli/jorc-service-export.txt", "cmd/jorc/testdata/cli/jorc-service-resolve.txt",
	} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(string(data)), " ")
		if !warningCounts.MatchString(text) {
			t.Errorf("%s explains functional instances and does not say that a warning counts: nothing in it matches %s", file, warningCounts)
		}
	}
}

var warningCounts = regexp.MustCompile(`passing or warning|warning check counts`)

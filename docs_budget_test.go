package jorc_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// times are what differs in what a command prints.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// TestBudgetGuide follows docs/budget.md on three hosts, of which one may be out: an operator types
// commands on the first, and drains the last. What commands print is what the page says, and never are
// two hosts at work.
func TestBudgetGuide(t *testing.T) {
	t.Parallel()
	bin, shared := buildJorc(t), t.TempDir()
	if err := os.Symlink(consultest.Binary(t), filepath.Join(bin, "consul")); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(shared, "log")
	all := blocks(t, "docs/budget.md")
	var hosts []*guideNode
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"ann@ops", "ann@" + machine}
	servers := consultest.StartCluster(t, 3)
	slices.SortFunc(servers, func(a, b *consultest.Server) int { return strings.Compare(a.Node, b.Node) }) // in the order of the page's names
	for i, s := range servers {
		names = append(names, fmt.Sprintf("web-%d", i+1), s.Node)
		n := &guideNode{t: t, name: s.Node, env: []string{
			"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "CONSUL_HTTP_ADDR=" + s.HTTPAddr, consultest.NoConfig, "JORC_STATE_DIR=" + t.TempDir(), "USER=ann",
		}}
		hosts = append(hosts, n)
		for _, b := range all {
			if b.kind == "host" || b.kind == "orchestrator" && i < 2 {
				n.config += b.text
			}
		}
		work := func(what string) string {
			return fmt.Sprintf("%q, %q, %q", "sh", "-c", fmt.Sprintf("echo begin %[1]s %[2]s >>%[3]s; sleep 0.3; echo end %[1]s %[2]s >>%[3]s", s.Node, what, log))
		}
		n.config = strings.NewReplacer(
			`"puppet", "apply", "/etc/puppet/site.pp"`, work("converge"), `"apt-get", "-y", "upgrade"`, work("patch"), `"systemctl", "reload", "nginx"`, work("reload"), "/etc/jorc", t.TempDir(),
		).Replace(n.config) + "\nhttp { address = \"\" }\n"
		n.agent()
	}
	replace, before := strings.NewReplacer(names...), int64(0)
	for _, b := range all {
		switch b.kind {
		case "host", "orchestrator":
		case "operator":
			hosts[0].succeed(replace.Replace(b.text))
		case "drained":
			if before == 0 { // from here on there is the budget
				info, err := os.Stat(log)
				if err != nil {
					t.Fatal(err)
				}
				before = info.Size()
			}
			hosts[2].succeed(b.text)
		case "prints":
			hosts[0].prints(replace.Replace(b.text))
		default:
			t.Errorf("unknown kind of block %q", b.kind)
		}
	}
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	atWork, begun := map[string]int{}, map[string]bool{}
	for line := range strings.Lines(string(data[before:])) {
		f := strings.Fields(line) // begin or end, the host, what
		node, what := f[1], f[2]
		if f[0] == "end" {
			atWork[node]--
		} else {
			atWork[node]++
			begun[node+" "+what] = true
		}
		if atWork[node] == 0 {
			delete(atWork, node)
		}
		if len(atWork) > 1 {
			t.Fatalf("%v are at work at the same time:\n%s", atWork, data)
		}
	}
	if len(begun) != 3*len(hosts) {
		t.Errorf("%v ran, want all three on each host:\n%s", begun, data)
	}
}

// agent runs the host's agent until the test ends.
func (n *guideNode) agent() {
	n.t.Helper()
	file := filepath.Join(n.t.TempDir(), "jorc.hcl")
	if err := os.WriteFile(file, []byte(n.config), 0o600); err != nil {
		n.t.Fatal(err)
	}
	agent := exec.CommandContext(n.t.Context(), "jorc", "agent", "--config", file)
	agent.Path, _, _ = strings.Cut(strings.TrimPrefix(n.env[0], "PATH="), ":")
	agent.Path, agent.Err, agent.Env = filepath.Join(agent.Path, "jorc"), nil, n.env
	output := new(strings.Builder)
	agent.Stdout, agent.Stderr = output, output
	agent.Cancel = func() error { return agent.Process.Signal(os.Interrupt) }
	if err := agent.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { // the test's context has interrupted it
		if _ = agent.Wait(); n.t.Failed() {
			n.t.Logf("agent of %s:\n%s", n.name, output)
		}
	})
}

// prints runs the commands of a block after "$ ", until each prints what follows, but for times.
func (n *guideNode) prints(text string) {
	n.t.Helper()
	for _, part := range strings.Split("\n"+text, "\n$ ")[1:] {
		command, want, _ := strings.Cut(part, "\n")
		consultest.Eventually(n.t, command+" to print what the page says", func(context.Context) error {
			if _, got := n.run(command); plain(got) != plain(want) {
				return fmt.Errorf("it prints\n%s\nwant\n%s", got, want)
			}
			return nil
		})
	}
}

// lists are names in parentheses, in an order that follows from the names.
var lists = regexp.MustCompile(`\([^()]*, [^()]*\)`)

// plain is a text without times, with sorted lists, and with one space where it has some.
func plain(text string) string {
	text = lists.ReplaceAllStringFunc(times.ReplaceAllString(text, "TIME"), func(list string) string {
		names := strings.Split(strings.Trim(list, "()"), ", ")
		slices.Sort(names)
		return "(" + strings.Join(names, ", ") + ")"
	})
	return strings.Join(strings.Fields(text), " ")
}

package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/runs"
)

// freezer freezes an agent at steps: a command of its configuration that reaches a step
// says so in the file at-<step>, and waits there for the file go.
type freezer struct {
	*machine
	proxy *consultest.Proxy

	mu     sync.Mutex
	answer func(*http.Request) bool // the request whose answer freezes the agent
	frozen *process
	held   chan struct{} // the answer is there
}

// stepScript is a shell's part of a freezer: wait at a step for content that matches what the file
// freeze-<step> holds.
const stepScript = `at() { [ "$(cat DIR/freeze-$1 2>/dev/null)" = "$2" ] || return 0; rm DIR/freeze-$1; touch DIR/at-$1; until [ -e DIR/go ]; do sleep 0.02; done; }
`

func newFreezer(t *testing.T, conf string) *freezer {
	t.Helper()
	s := consultest.Start(t)
	f := &freezer{machine: newMachine(t, s, ""), proxy: s.Proxy(), held: make(chan struct{}, 1)}
	f.write("steps.sh", strings.ReplaceAll(stepScript, "DIR", f.dir))
	f.configure(conf)
	f.proxy.Do(f.pass)
	return f
}

// pass freezes the agent before it gets the answer to the request that was asked for.
func (f *freezer) pass(r *http.Request) consultest.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answer != nil && f.answer(r) {
		f.answer = nil
		f.frozen.signal(syscall.SIGSTOP)
		f.held <- struct{}{}
	}
	return consultest.Fault{}
}

// agentBehindProxy starts an agent whose Consul is behind the proxy.
func (f *freezer) agentBehindProxy() *process {
	f.t.Helper()
	before := f.env
	f.env = append(slices.Clone(f.env), "CONSUL_HTTP_ADDR="+f.proxy.Addr)
	defer func() { f.env = before }()
	return f.agent()
}

// freezeAt has content wait at a step from now on.
func (f *freezer) freezeAt(step, content string) {
	f.t.Helper()
	if err := os.Remove(f.path("go")); err != nil && !errors.Is(err, os.ErrNotExist) {
		f.t.Fatal(err)
	}
	f.write("freeze-"+step, content)
}

// thawAfter freezes the agent once it is at the step, does what happens meanwhile, lets the
// step's command end, and thaws the agent.
func (f *freezer) thawAfter(d *process, step string, meanwhile func()) {
	f.t.Helper()
	f.eventually("step "+step, func() error { _, err := os.Stat(f.path("at-" + step)); return err })
	d.signal(syscall.SIGSTOP)
	meanwhile()
	f.write("go", "")
	d.signal(syscall.SIGCONT)
}

// wantOrder waits until the last line of the file of a name is the wanted one, and fails if an
// older line follows a newer one.
func (f *freezer) wantOrder(name, last string) {
	f.t.Helper()
	f.eventually(name+" to end with "+last, func() error {
		if lines := strings.Fields(f.read(name)); len(lines) == 0 || lines[len(lines)-1] != last {
			return fmt.Errorf("got %q", lines)
		}
		return nil
	})
	if lines := strings.Fields(f.read(name)); !slices.IsSorted(lines) {
		f.t.Errorf("%s: older content landed after newer: %q", name, lines)
	}
}

// landing is a template whose content is the key n, and which says what has landed.
const landing = `
template "t" {
  contents    = "{{ key \"n\" }}"
  destination = "DIR/t"
  check       = ["sh", "-c", ". DIR/steps.sh; at check $(cat $1)", "check", "{{.Staged}}"]
  reload      = ["sh", "-c", ". DIR/steps.sh; cat DIR/t >>DIR/landed; echo >>DIR/landed; at reload $(cat DIR/t)"]
  STAGE
}
`

// TestFrozenTemplate: an agent that is frozen at any step between Consul's answer and the end of
// the reload puts no older content after newer, with and without a stage, and ends with the newest.
// The same holds when it is killed there and another agent starts.
func TestFrozenTemplate(t *testing.T) {
	t.Parallel()
	for name, stage := range map[string]string{"template": "", "stage": `stage "s" { min_healthy = "1ms" }`} {
		for _, step := range []string{"check", "reload"} {
			t.Run(name+" at "+step, func(t *testing.T) {
				t.Parallel()
				f := newFreezer(t, `
http { address = "127.0.0.1:0" }
member {}
orchestrator { interval = "200ms" }
`+strings.ReplaceAll(landing, "STAGE", stage))
				f.must("cluster", "init", "default")
				f.put("n", "1")
				d := f.agent()
				f.wantOrder("landed", "1")
				f.freezeAt(step, "2")
				f.put("n", "2")
				f.thawAfter(d, step, func() { f.put("n", "3"); f.put("n", "4") })
				f.wantOrder("landed", "4")
				f.wantFile("t", "4")

				if err := os.Remove(f.path("at-" + step)); err != nil {
					t.Fatal(err)
				}
				f.freezeAt(step, "5")
				f.put("n", "5")
				f.eventually("step "+step, func() error { _, err := os.Stat(f.path("at-" + step)); return err })
				d.signal(syscall.SIGSTOP)
				f.put("n", "6")
				d.signal(syscall.SIGKILL)
				d.wantExit(-1)
				f.write("go", "")
				f.agent()
				f.wantOrder("landed", "6")
				f.wantFile("t", "6")
			})
		}
	}
}

// TestFrozenAtAnswer: an agent that is frozen when Consul has answered, and thaws when the
// answer is old, ends with the newest content, and gives the old answer up for the newer one
// without putting it after that.
func TestFrozenAtAnswer(t *testing.T) {
	t.Parallel()
	f := newFreezer(t, `http { address = "127.0.0.1:0" }`+strings.ReplaceAll(landing, "STAGE", ""))
	f.put("n", "1")
	d := f.agentBehindProxy()
	f.wantOrder("landed", "1")
	for _, n := range []string{"2", "4", "6"} {
		f.mu.Lock()
		f.frozen, f.answer = d, func(r *http.Request) bool {
			return strings.HasPrefix(r.URL.Path, "/v1/kv/") && r.URL.Query().Has("index")
		}
		f.mu.Unlock()
		f.put("n", n) // its answer makes the agent ask again: that question freezes it
		<-f.held
		f.put("n", string(n[0]+1))
		d.signal(syscall.SIGCONT)
		f.wantOrder("landed", string(n[0]+1))
	}
	f.wantFile("t", "7")
}

// TestFrozenVersion: an agent that is frozen at any step on its way to a version runs no older one
// after a newer one, and reports the newest at the end.
func TestFrozenVersion(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"static", "validation"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			f := newFreezer(t, `
http { address = "127.0.0.1:0" }
version_file = "DIR/version"
member {}
orchestrator { interval = "200ms" }
static {
  workflow   = "static"
  validation = "validation"
}
workflow "static" {
  task "one" { script = ". DIR/steps.sh; echo $JORC_VERSION >>DIR/landed; at static $JORC_VERSION" }
}
workflow "validation" {
  task "one" { script = ". DIR/steps.sh; at validation $JORC_VERSION" }
}
`)
			f.must("cluster", "init", "default")
			f.must("update", "trigger", "v1")
			d := f.agent()
			f.wantFile("version", "v1\n")
			f.freezeAt(step, "v2")
			f.must("update", "trigger", "v2")
			f.thawAfter(d, step, func() { f.must("update", "trigger", "v3") })
			f.wantFile("version", "v3\n")
			f.wantOrder("landed", "v3")
			f.must("update", "wait", "--timeout", "1m")
			if got := f.run("update", "show", "-o", "json"); !strings.Contains(got.stdout, `"version": "v3"`) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestFrozenRun: an agent that is frozen in the task of a run, while another run is asked for, brings the
// first one to its end before it begins the second.
func TestFrozenRun(t *testing.T) {
	t.Parallel()
	f := newFreezer(t, `
http { address = "127.0.0.1:0" }
cluster = "prod"
member {}
orchestrator { interval = "200ms" }
workflow "w1" {
  task "one" { script = ". DIR/steps.sh; echo 1 >>DIR/landed; at run 1" }
  task "two" { script = "echo 1-again >>DIR/landed" }
}
workflow "w2" {
  task "one" { script = "echo 2 >>DIR/landed" }
}
`)
	f.must("cluster", "init", "prod")
	f.env = append(f.env, "JORC_CLUSTER=prod")
	d := f.agent()
	f.must("cluster", "wait", "--for", "members=1")
	f.freezeAt("run", "1")
	f.must("cluster", "run", "w1", "--id", "r1")
	f.thawAfter(d, "run", func() { f.must("cluster", "run", "w2", "--id", "r2") })
	f.must("cluster", "wait", "--for", "run=r2")
	f.wantFile("landed", "1\n1-again\n2\n")
}

// TestFrozenCancelledRun: an agent that is frozen between two tasks of a run, while the run is cancelled,
// does not begin the next task when it thaws, also if what its watches would deliver comes late.
func TestFrozenCancelledRun(t *testing.T) {
	t.Parallel()
	f := newFreezer(t, `
http { address = "127.0.0.1:0" }
member {}
orchestrator { enabled = false }
workflow "w" {
  task "one" { script = ". DIR/steps.sh; echo 1 >>DIR/landed; at run 1" }
  task "two" { script = "echo 2 >>DIR/landed" }
}
`)
	var held atomic.Bool
	release := make(chan struct{})
	f.proxy.Do(func(r *http.Request) (late consultest.Fault) {
		if r.URL.Query().Has("index") {
			late.Late = func() {
				if held.Load() {
					select {
					case <-release:
					case <-t.Context().Done():
					}
				}
			}
		}
		return late
	})
	f.must("cluster", "init", "default")
	newMachine(t, f.server, `
node = "boss"
http { address = "127.0.0.1:0" }
orchestrator { interval = "200ms" }
`).agent()
	d := f.agentBehindProxy()
	f.must("cluster", "wait", "--for", "members=1")
	f.freezeAt("run", "1")
	f.must("cluster", "run", "w", "--id", "r")
	f.thawAfter(d, "run", func() {
		held.Store(true)
		f.must("cluster", "cancel", "r")
		f.eventually("the host's grants to say that the run is cancelled", func() error { return lacks(f.value("jorc/default/"+cluster.GrantsKey(f.server.Node)), `"cancel"`) })
	})
	// A run that is not cancelled ends, too: waiting for its cancellation would be in vain.
	var run runs.Run
	f.eventually("the end of the run", func() (err error) {
		if run, err = runs.New(kv.New(f.client, "jorc/default")).Run(t.Context(), "r"); err == nil && !run.State.Ended() {
			err = fmt.Errorf("it is %s", run.State)
		}
		return err
	})
	if run.State != runs.Cancelled || f.read("landed") != "1\n" {
		t.Fatalf("the run is %s, its tasks wrote %q", run.State, f.read("landed"))
	}
	close(release)
	f.must("cluster", "run", "w", "--id", "next")
	f.must("cluster", "wait", "--for", "run=next")
	f.wantFile("landed", "1\n1\n2\n")
}

// slowNetwork forwards to an address and delays what comes back, each piece by another time:
// answers of different connections overtake each other.
type slowNetwork struct {
	net.Listener
	wg sync.WaitGroup
}

func newSlowNetwork(t *testing.T, to string) *slowNetwork {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &slowNetwork{Listener: l}
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2))
	delay := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.IntN(100)) * time.Millisecond
	}
	n.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			t.Cleanup(func() { _, _ = in.Close(), out.Close() })
			n.wg.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
			n.wg.Go(func() {
				defer in.Close()
				buf := make([]byte, 64<<10)
				for {
					k, err := out.Read(buf)
					if k > 0 {
						time.Sleep(delay()) // this is the delay that the test is about
						if _, err := in.Write(buf[:k]); err != nil {
							return
						}
					}
					if err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close() })
	return n
}

// TestDelayedNetwork: answers of Consul that overtake each other, while templates begin and cease
// to use keys, put no older content after newer.
func TestDelayedNetwork(t *testing.T) {
	t.Parallel()
	f := newFreezer(t, `
http { address = "127.0.0.1:0" }
template "t" {
  contents    = "{{ key \"n\" }}"
  destination = "DIR/t"
  reload      = ["sh", "-c", "cat DIR/t >>DIR/landed; echo >>DIR/landed"]
}
template "changing" {
  contents    = "{{ with key \"n\" }}{{ range ls (printf \"many/%s\" .) }}{{ .Value }}{{ end }}{{ keyOrDefault (printf \"n%s\" .) \"\" }}{{ keyOrDefault \"n\" \"\" }}{{ end }}"
  destination = "DIR/changing"
}
`)
	f.put("n", "1000")
	network := newSlowNetwork(t, f.server.HTTPAddr)
	before := f.env
	f.env = append(slices.Clone(f.env), "CONSUL_HTTP_ADDR="+network.Addr().String())
	f.agent()
	f.env = before
	f.wantOrder("landed", "1000")
	for n := 1001; n <= 1060; n++ {
		f.put("n", fmt.Sprint(n))
		f.put(fmt.Sprintf("many/%d/a", n), "x")
		if n%10 == 0 {
			f.wantOrder("landed", fmt.Sprint(n))
		}
	}
	f.wantFile("t", "1060")
	f.wantFile("changing", "x1060")
}

// TestDelayedChanges: with answers that overtake each other no older content of a stage, version or run lands
// after a newer one.
func TestDelayedChanges(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		conf   string
		change func(f *freezer, n string)
	}{
		"stage": {strings.ReplaceAll(landing, "STAGE", `stage "s" { min_healthy = "1ms" }`), func(f *freezer, n string) { f.put("n", n) }},
		"version": {`
static { workflow = "static" }
workflow "static" {
  task "one" { script = "echo $JORC_VERSION >>DIR/landed" }
}
`, func(f *freezer, n string) { f.must("update", "trigger", n) }},
		"run": {`
workflow "w" {
  allow_params = ["n"]
  task "one" { command = ["sh", "-c", "echo $1 >>DIR/landed", "sh", "{{.Param \"n\"}}"] }
}
`, func(f *freezer, n string) { f.must("cluster", "run", "w", "--id", n, "--param", "n="+n) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFreezer(t, `
http { address = "127.0.0.1:0" }
member {}
orchestrator { interval = "200ms" }
`+tt.conf)
			f.must("cluster", "init", "default")
			network := newSlowNetwork(t, f.server.HTTPAddr)
			before := f.env
			f.env = append(slices.Clone(f.env), "CONSUL_HTTP_ADDR="+network.Addr().String())
			f.agent()
			f.env = before
			if name == "stage" {
				f.put("n", "100")
			}
			f.must("cluster", "wait", "--for", "members=1")
			for n := 101; n <= 115; n++ {
				tt.change(f, fmt.Sprint(n))
				if n%5 == 0 {
					f.wantOrder("landed", fmt.Sprint(n))
				}
			}
		})
	}
}

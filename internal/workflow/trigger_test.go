package workflow_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/workflow"
)

// bed is a host with triggers; its workflow "note" appends the change that it
// receives to the file "changes".
type bed struct {
	t      *testing.T
	client *consul.Client
	dir    string
	events chan workflow.Observation
	log    bytes.Buffer
	node   string
	more   []config.Workflow // beside "note"
	clock  *testClock        // nil: the host's
	held   chan struct{}     // nil: the host has no hold; otherwise closed when the hold ends

	mu    sync.Mutex
	last  uint64 // the event after which the source was started
	known bool
}

// shared is the Consul that tests share; each has keys and services of its own.
func shared(t *testing.T) *consultest.Server {
	t.Helper()
	s, _ := consultest.Shared(t)
	return s
}

func newBed(t *testing.T, s *consultest.Server) *bed {
	t.Helper()
	return &bed{t: t, client: s.Client(), dir: t.TempDir(), events: make(chan workflow.Observation), node: "n1"}
}

// run starts the triggers; the returned function stops them.
func (b *bed) run(triggers ...config.Trigger) (stop func()) {
	b.t.Helper()
	runner := workflow.New(workflow.Options{
		StateDir: b.dir, Node: b.node, Log: hclog.NewNullLogger(),
		Workflows: append(b.more, config.Workflow{Name: "note", Tasks: []config.Task{{
			Name: "note", Script: "cat \"$JORC_CHANGE\" >>" + b.dir + "/changes; echo >>" + b.dir + "/changes",
		}}}),
		Held: func() string {
			select {
			case <-b.held:
				return ""
			default:
				if b.held == nil {
					return ""
				}
				return "held by a test"
			}
		},
		Free: func(ctx context.Context) error {
			select {
			case <-b.held:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	o := workflow.TriggerOptions{
		StateDir: b.dir, Triggers: triggers,
		Log: hclog.New(&hclog.LoggerOptions{Output: &b.log, Mutex: &b.mu}),
		Source: func(t config.Trigger, after uint64, known bool) workflow.TriggerSource {
			if t.Event == "" {
				return workflow.ConsulSource(b.client, t, hclog.NewNullLogger())
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.last, b.known = after, known
			return eventSource(b.events)
		},
	}
	if b.clock != nil {
		o.Clock = b.clock
	}
	go func() { done <- runner.RunTriggers(ctx, o) }()
	return func() {
		b.t.Helper()
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("Run: %v", err)
		}
	}
}

type eventSource chan workflow.Observation

func (s eventSource) Watch(ctx context.Context, observe func(workflow.Observation)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case o := <-s:
			observe(o)
		}
	}
}

// changes returns the changes that the workflow received.
func (b *bed) changes() []workflow.Change {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, "changes"))
	if err != nil {
		return nil
	}
	var list []workflow.Change
	for line := range strings.Lines(string(data)) {
		var c workflow.Change
		if strings.TrimSpace(line) == "" || !strings.HasSuffix(line, "\n") { // it is being written
			continue
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			b.t.Fatalf("the workflow was handed %q: %v", line, err)
		}
		list = append(list, c)
	}
	return list
}

// wantChanges waits for one run per text, such as "added a, removed b".
func (b *bed) wantChanges(texts ...string) {
	b.t.Helper()
	consultest.Eventually(b.t, "runs", func(context.Context) error {
		var got []string
		for _, c := range b.changes() {
			var parts []string
			for _, i := range c.Changes {
				parts = append(parts, i.Change+" "+i.Item)
			}
			got = append(got, strings.Join(parts, ", "))
		}
		if fmt.Sprint(got) != fmt.Sprint(texts) {
			return fmt.Errorf("got %q, want %q", got, texts)
		}
		return nil
	})
}

// wantKnown waits until the trigger has its first observation.
func (b *bed) wantKnown(name string) {
	b.t.Helper()
	consultest.Eventually(b.t, "a first look", func(context.Context) error {
		_, err := os.Stat(filepath.Join(b.dir, "triggers", name+".json"))
		return err
	})
}

func (b *bed) put(key, value string) {
	b.t.Helper()
	if err := b.client.KVPut(b.t.Context(), &consul.KVPair{Key: key, Value: []byte(value)}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) register(id string, port int) {
	b.t.Helper()
	err := b.client.RegisterService(b.t.Context(), &consul.ServiceRegistration{ID: id, Name: "web", Port: port, Address: "127.0.0.9"})
	if err != nil {
		b.t.Fatal(err)
	}
}

// TestKey: the initial state does not fire the trigger, each change runs the
// workflow once, also a change while the agent is stopped, and a restart runs
// nothing.
func TestKey(t *testing.T) {
	t.Parallel()
	b := newBed(t, shared(t))
	key := config.Trigger{Name: "k", Key: "a/key", Workflow: "note"}
	b.put("a/key", "1")
	stop := b.run(key)
	b.wantKnown("k")
	b.put("a/key", "2")
	b.wantChanges("changed a/key")
	if c := b.changes()[0]; c.Kind != "key" || c.Name != "a/key" || c.Trigger != "k" || string(c.Changes[0].Value) != `"2"` || c.Total != 1 {
		t.Errorf("got %+v", c)
	}
	stop()
	b.put("a/key", "3")
	stop = b.run(key)
	b.wantChanges("changed a/key", "changed a/key")
	stop()
	stop = b.run(key)
	b.put("a/key", "4") // a run after the restart would precede this change
	b.wantChanges("changed a/key", "changed a/key", "changed a/key")
	stop()
	if c := b.changes()[2]; string(c.Changes[0].Value) != `"4"` {
		t.Errorf("got %+v", c)
	}
}

// TestServiceAndPrefix: each changed item is named.
func TestServiceAndPrefix(t *testing.T) {
	t.Parallel()
	s := shared(t)
	b := newBed(t, s)
	stop := b.run(config.Trigger{Name: "s", Service: "web", Workflow: "note"})
	b.wantKnown("s")
	b.register("web1", 80)
	b.wantChanges("added " + s.Node + "/web1")
	b.register("web1", 81)
	b.wantChanges("added "+s.Node+"/web1", "changed "+s.Node+"/web1")
	if err := b.client.DeregisterService(t.Context(), "web1"); err != nil {
		t.Fatal(err)
	}
	b.wantChanges("added "+s.Node+"/web1", "changed "+s.Node+"/web1", "removed "+s.Node+"/web1")
	stop()

	b = newBed(t, s)
	b.put("p/a", "1")
	b.put("p/b", "1")
	stop = b.run(config.Trigger{Name: "p", Prefix: "p/", Workflow: "note"})
	b.wantKnown("p")
	stop()
	b.put("p/b", "2")
	b.put("p/c", "\xff")
	stop = b.run(config.Trigger{Name: "p", Prefix: "p/", Workflow: "note"})
	b.wantChanges("changed p/b, added p/c")
	if c := b.changes()[0]; string(c.Changes[1].Value) != `{"base64":"/w=="}` {
		t.Errorf("got %s", c.Changes[1].Value)
	}
	stop()
	// The same trigger on another object has no state.
	stop = b.run(config.Trigger{Name: "p", Prefix: "q/", Workflow: "note"})
	b.put("q/a", "1")
	b.put("p/a", "2")
	stop()
	b.wantChanges("changed p/b, added p/c")
}

// TestEvents: each event runs the workflow once, also if it is observed again.
func TestEvents(t *testing.T) {
	t.Parallel()
	b := newBed(t, shared(t))
	conf := config.Trigger{Name: "e", Event: "node_down", Workflow: "note"}
	happened := func(numbers ...string) workflow.Observation {
		items := map[string]workflow.Item{}
		for _, n := range numbers {
			items[n] = workflow.Item(`{"node":"n1"}`)
		}
		return workflow.Observation{Items: items, Happened: true}
	}
	stop := b.run(conf)
	b.events <- workflow.Observation{Happened: true, UpTo: 8}
	b.wantKnown("e")
	stop()
	if got := b.changes(); got != nil {
		t.Fatalf("events of before have run %+v", got)
	}
	stop = b.run(conf)
	b.events <- happened("8", "9", "10")
	b.wantChanges("happened 9, happened 10")
	b.events <- happened("10", "11")
	b.wantChanges("happened 9, happened 10", "happened 11")
	stop()
	stop = b.run(conf)
	b.events <- happened("12")
	b.wantChanges("happened 9, happened 10", "happened 11", "happened 12")
	stop()
	if b.last != 11 || !b.known {
		t.Errorf("events were asked for after %d (known: %t), want 11", b.last, b.known)
	}

	// Numbers start again: the events until then do not fire the trigger.
	stop = b.run(conf)
	b.events <- workflow.Observation{Happened: true, UpTo: 3, Restarted: true}
	b.events <- happened("3", "4")
	b.wantChanges("happened 9, happened 10", "happened 11", "happened 12", "happened 4")
	stop()
	stop = b.run(conf)
	b.events <- happened("4", "5")
	b.wantChanges("happened 9, happened 10", "happened 11", "happened 12", "happened 4", "happened 5")
	stop()
	if b.last != 4 {
		t.Errorf("events were asked for after %d, want 4", b.last)
	}
}

// TestInterrupted: a saved change runs once after a restart, on a host with a
// hold when the hold ends.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	b := newBed(t, shared(t))
	conf := config.Trigger{Name: "k", Key: "held/key", Workflow: "note"}
	b.held = make(chan struct{})
	stop := b.run(conf)
	b.wantKnown("k")
	b.put("held/key", "1")
	consultest.Eventually(t, "the pending job", func(context.Context) error {
		data, err := os.ReadFile(filepath.Join(b.dir, "triggers", "k.json"))
		if err == nil && !strings.Contains(string(data), `"pending"`) {
			err = fmt.Errorf("got %s", data)
		}
		return err
	})
	stop()
	if got := b.changes(); got != nil {
		t.Fatalf("a held host has run %+v", got)
	}
	b.put("held/key", "2")
	close(b.held)
	stop = b.run(conf)
	b.wantChanges("added held/key", "changed held/key")
	stop()
	jobs, err := os.ReadDir(filepath.Join(b.dir, "jobs"))
	if err != nil || len(jobs) < 2 {
		t.Errorf("got %v, %v", jobs, err)
	}
}

// TestUnknownWorkflow: a change whose workflow is unknown is logged, and the next
// change is handled.
func TestUnknownWorkflow(t *testing.T) {
	t.Parallel()
	b := newBed(t, shared(t))
	stop := b.run(config.Trigger{Name: "k", Key: "u/key", Workflow: "nothing"})
	b.wantKnown("k")
	b.put("u/key", "1")
	for _, n := range []string{"-1", "-2"} {
		consultest.Eventually(t, "the log", func(context.Context) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			for line := range strings.Lines(b.log.String()) {
				if strings.Contains(line, "cannot run") && strings.Contains(line, n+" ") {
					return nil
				}
			}
			return fmt.Errorf("got %s", b.log.String())
		})
		b.put("u/key", "2")
	}
	stop()
}

// TestDamagedState: a trigger whose state was damaged says so, names the file, and
// handles the next change.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"cut": `{"of":"key d/k`, "empty": "", "other": "{}", "format": `{"format":1,"of":"o"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, shared(t))
			file := filepath.Join(b.dir, "triggers", "k.json")
			conf := config.Trigger{Name: "k", Key: "d/" + name, Workflow: "note"}
			stop := b.run(conf)
			b.wantKnown("k")
			stop()
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			stop = b.run(conf)
			consultest.Eventually(t, "a first look", func(context.Context) error {
				data, err := os.ReadFile(file)
				if err == nil && !strings.Contains(string(data), `"known":true`) {
					err = fmt.Errorf("got %s", data)
				}
				return err
			})
			b.put("d/"+name, "1")
			b.wantChanges("added d/" + name)
			stop()
			if log := b.log.String(); strings.Count(log, "the trigger's state is damaged") != 1 || !strings.Contains(log, file) {
				t.Errorf("the log is %q, want that the state in %s is damaged", log, file)
			}
		})
	}
}

// TestFiltered: instances that the token may no longer read are not removed.
func TestFiltered(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	b := newBed(t, s)
	may := b.client
	conf := config.Trigger{Name: "s", Service: "web", Workflow: "note"}
	b.register("web1", 80)
	stop := b.run(conf)
	b.wantKnown("s")
	stop()

	proxy := s.Proxy()
	less := proxy.Config()
	less.Token = config.Secret(s.NewToken(`node_prefix "" { policy = "read" }`))
	client, err := consul.New(less)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	b.client = client
	stop = b.run(conf)
	consultest.Eventually(t, "two looks", func(context.Context) error {
		if proxy.Asked("/v1/health/service/web") < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	stop()

	b.client = may
	b.register("web2", 81)
	stop = b.run(conf)
	b.wantChanges("added " + s.Node + "/web2")
	stop()
}

package orchestrator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/orchestrator"
)

// hook is a webhook's other side.
type hook struct {
	secret string
	server *httptest.Server

	mu     sync.Mutex
	fail   int // so many requests more
	seqs   []uint64
	faults []string
}

func newHook(t *testing.T, secret string) *hook {
	h := &hook{secret: secret}
	h.server = httptest.NewServer(h)
	t.Cleanup(h.server.Close)
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fail > 0 {
		h.fail--
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	body, err := io.ReadAll(r.Body)
	var events []orchestrator.Event
	if err == nil {
		err = json.Unmarshal(body, &events)
	}
	if err != nil || r.Header.Get(orchestrator.HeaderCluster) != "prod" || r.Header.Get(orchestrator.HeaderSignature) != orchestrator.Sign([]byte(h.secret), body) {
		h.faults = append(h.faults, fmt.Sprintf("%v %v %s", err, r.Header, body))
	}
	for _, e := range events {
		h.seqs = append(h.seqs, e.Seq)
	}
}

// complete reports whether each event up to seq came, in order apart from repetitions.
func (h *hook) complete(seq uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.faults) > 0 {
		return errors.New(strings.Join(h.faults, "\n"))
	}
	last := uint64(0)
	for _, n := range h.seqs {
		if n > last+1 {
			return fmt.Errorf("event %d came after %d", n, last)
		}
		last = max(last, n)
	}
	if last < seq {
		return fmt.Errorf("event %d is the last one that came", last)
	}
	return nil
}

// TestSinks: each sink gets all events, also those it first refuses, and over a
// take-over; how far it is is written down.
func TestSinks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	s.must(nil, os.WriteFile(secret, []byte("s3cret\n"), 0o600))
	h := newHook(t, "s3cret")
	h.fail = 1
	var log bytes.Buffer
	o := quick(s.client)
	o.Sinks = []orchestrator.Sink{
		orchestrator.NewWebhookSink(h.server.URL+"/in?token=x", secret),
		orchestrator.FileSink{Path: filepath.Join(dir, "events.jsonl")},
		orchestrator.LogSink{Log: hclog.New(&hclog.LoggerOptions{Output: &log, JSONFormat: true})},
	}
	orch, stop := s.start(o)
	told := func(seq uint64) { // the answer of a sink that has the events may still be on its way
		s.eventually(fmt.Sprintf("all sinks to be at %d", seq), func() error {
			at := orch.Status().Sinks
			for _, sink := range o.Sinks {
				if at[sink.Name()] != seq {
					return fmt.Errorf("they are at %v", at)
				}
			}
			return nil
		})
	}
	s.join("a")
	s.eventually("the webhook to have the first events", func() error { return h.complete(4) })
	told(4)
	stop()
	orch, stop = s.start(o)
	s.join("b")
	s.eventually("the webhook to have all events", func() error { return h.complete(5) })
	told(5)
	s.eventually("the file to have all events", func() error {
		data, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
		if n := bytes.Count(data, []byte("\n")); err != nil || n != 5 {
			return fmt.Errorf("%d lines, %v", n, err)
		}
		return nil
	})
	stop()
	for i, line := range strings.Split(strings.TrimSpace(log.String()), "\n") {
		var m map[string]any
		s.must(nil, json.Unmarshal([]byte(line), &m))
		if m["seq"] != float64(i+1) || m["cluster"] != "prod" || m["@message"] == "" {
			t.Errorf("log line %d: %s", i, line)
		}
	}
	p := indexOf(s, "events/sinks")
	_, stop = s.start(o)
	s.eventually("the third to be at work", func() error {
		if s.holder() != "boss" {
			return errEventsPending
		}
		return nil
	})
	stop()
	if now := indexOf(s, "events/sinks"); now != p {
		t.Error("how far the sinks are was written anew though they did not move")
	}
	if n := len(h.seqs); n != 5 {
		t.Errorf("the webhook got %d events, want each once: everything stopped cleanly", n)
	}
}

// TestSlowSink: a sink that takes for ever delays neither cycles nor other sinks.
func TestSlowSink(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := newHook(t, "")
	stuck := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then it is noticed that the client leaves
		<-r.Context().Done()
	}))
	t.Cleanup(stuck.Close)
	secret := filepath.Join(t.TempDir(), "secret")
	s.must(nil, os.WriteFile(secret, []byte("x"), 0o600))
	h.secret = "x"
	o := quick(s.client)
	o.Sinks = []orchestrator.Sink{orchestrator.NewWebhookSink(stuck.URL, ""), orchestrator.NewWebhookSink(h.server.URL, secret)}
	s.start(o)
	for i := range 5 {
		s.join(fmt.Sprint("n", i))
	}
	s.eventually("all events", func() error { return h.complete(3 + 5) })
}

// TestSinksOfTheKilled: whichever orchestrator is killed, each event comes at least once.
func TestSinksOfTheKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	s.must(nil, os.WriteFile(secret, []byte("x"), 0o600))
	h := newHook(t, "x")
	for range 4 {
		p := s.process(sinkTo+"="+h.server.URL, secretIn+"="+secret)
		before := len(s.events())
		s.join(fmt.Sprint("n", before))
		s.eventually("an event", func() error {
			if len(s.events()) == before {
				return errEventsPending
			}
			return nil
		})
		p.kill()
	}
	s.process(sinkTo+"="+h.server.URL, secretIn+"="+secret)
	s.eventually("all events", func() error { return h.complete(uint64(len(s.events()))) })
}

// TestLateSink: a sink that refuses events for longer than the journal keeps them
// gets the ones that are kept, in order, and what it missed is logged.
func TestLateSink(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	secret := filepath.Join(t.TempDir(), "secret")
	s.must(nil, os.WriteFile(secret, []byte("x"), 0o600))
	h := newHook(t, "x")
	h.fail = 1 << 30
	var log bytes.Buffer
	o := quick(s.client)
	o.Journal.MaxEvents = 10
	o.Log = hclog.New(&hclog.LoggerOptions{Output: &log, Mutex: new(sync.Mutex)})
	o.Sinks = []orchestrator.Sink{orchestrator.NewWebhookSink(h.server.URL, secret)}
	_, stop := s.start(o)
	first := func() uint64 {
		events := s.events()
		if len(events) == 0 {
			return 1
		}
		return events[0].Seq
	}
	for i := 0; first() == 1; i++ {
		s.join(fmt.Sprint("n", i))
	}
	h.mu.Lock()
	h.fail = 0
	h.mu.Unlock()
	last := func() uint64 { all := s.events(); return all[len(all)-1].Seq }
	s.eventually("the sink to have the last event", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if n := len(h.seqs); n == 0 || h.seqs[n-1] < last() {
			return errEventsPending
		}
		return nil
	})
	stop()
	if h.seqs[0] == 1 || h.seqs[0] > first() {
		t.Errorf("the sink got events from %d on; kept are those from %d on", h.seqs[0], first())
	}
	for i, seq := range h.seqs {
		if seq != h.seqs[0]+uint64(i) {
			t.Fatalf("the sink got %v", h.seqs)
		}
	}
	if text := log.String(); !strings.Contains(text, "events were gone before a sink took them") {
		t.Errorf("nothing is said of what it missed: %s", text)
	}
}

func events(seqs ...uint64) (all []orchestrator.Event) {
	for _, seq := range seqs {
		all = append(all, orchestrator.Event{Seq: seq, Kind: "k", Text: "<t>"})
	}
	return all
}

// TestFileSink: a line that a crash tore is ended, and the file does not grow
// without bounds.
func TestFileSink(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(path, []byte(`{"torn`), 0o600); err != nil {
		t.Fatal(err)
	}
	f := orchestrator.FileSink{Path: path, MaxSize: 200, Keep: 2}
	for i := range uint64(9) {
		if err := f.Send(context.Background(), "prod", events(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	var all string
	for _, name := range []string{path + ".2", path + ".1", path} {
		data, err := os.ReadFile(name)
		if err != nil || len(data) > 200 {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
		all += string(data)
	}
	if _, err := os.Stat(path + ".3"); err == nil {
		t.Error("a third old file is kept")
	}
	lines := strings.Split(strings.TrimSpace(all), "\n")
	for i, line := range lines {
		want := fmt.Sprintf(`{"cluster":"prod","seq":%d,"time":"0001-01-01T00:00:00Z","kind":"k","text":"<t>"}`, 10-len(lines)+i)
		if line != want {
			t.Errorf("line %d is %s, want %s", i, line, want)
		}
	}
	if err := (orchestrator.FileSink{Path: filepath.Join(path, "x")}).Send(context.Background(), "prod", events(1)); err == nil {
		t.Error("a file below a file was written")
	}
}

// TestFileSinkFull: of events that did not fit nothing stays, and they are
// written whole once there is room.
func TestFileSinkFull(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events")
	f := orchestrator.FileSink{Path: path}
	if err := f.Send(context.Background(), "prod", events(1)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A process whose files may not grow beyond a little more than that.
	send := exec.Command(os.Args[0])
	send.Env = append(os.Environ(), sendTo+"="+path, fmt.Sprintf("%s=%d", sendLimit, len(before)+20))
	if out, err := send.CombinedOutput(); err != nil || !strings.Contains(string(out), "file too large") {
		t.Fatalf("%v, %s", err, out)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(before) {
		t.Errorf("what did not fit left %q, %v", now, err)
	}
	if err := f.Send(context.Background(), "prod", events(2)); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(path); err != nil || strings.Count(string(now), "\n") != 2 {
		t.Errorf("%q, %v", now, err)
	}
}

// TestFileSinkShared: clusters that share a file and its rotation lose nothing
// but what is older than what is kept.
func TestFileSinkShared(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events")
	const clusters, each, keep = 8, 40, 100
	var sending sync.WaitGroup
	for i := range clusters {
		f := orchestrator.FileSink{Path: path, MaxSize: 400, Keep: keep}
		sending.Go(func() {
			for n := range uint64(each) {
				if err := f.Send(context.Background(), fmt.Sprint("c", i), events(n+1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sending.Wait()
	all, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, name := range all {
		data, err := os.ReadFile(name)
		if err != nil || len(data) == 0 || len(data) > 400 || name != path && len(data) < 300 {
			t.Errorf("%s has %d bytes, %v", name, len(data), err)
		}
		for line := range strings.Lines(string(data)) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%s: %q", name, line)
			}
			lines++
		}
	}
	if lines != clusters*each || len(all) >= keep {
		t.Errorf("%d events in %d files, want %d", lines, len(all), clusters*each)
	}
}

// TestWebhookFailures: anything but success is a failure that shows neither the
// secret nor the address's query.
func TestWebhookFailures(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	redirect := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound))
	t.Cleanup(redirect.Close)
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, address, secret, want string }{
		{"redirect", redirect.URL, "", "302 Found"},
		{"nobody", "http://user:word@127.0.0.1:1/hidden/in?token=hidden#hidden", "", "post events to 127.0.0.1:1#"},
		{"no secret", redirect.URL, filepath.Join(dir, "missing"), "no such file"},
		{"empty secret", redirect.URL, empty, "is empty"},
		{"no address", "http://%zz", "", "the address is not a URL"},
	} {
		err := orchestrator.NewWebhookSink(test.address, test.secret).Send(ctx, "prod", events(1))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "word") {
			t.Errorf("%s: %v; want %q", test.name, err, test.want)
		}
	}
}

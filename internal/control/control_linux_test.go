package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/control"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/leasetest"
)

// log is a log that tests read.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// host has an agent's server.
type host struct {
	control.Options
	*leasetest.Holder
	log *log
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{Holder: &leasetest.Holder{}, log: &log{}}
	h.Options = control.Options{
		Socket: filepath.Join(t.TempDir(), "control.sock"), Holder: h.Holder, Version: "v1", Log: hclog.New(&hclog.LoggerOptions{Output: h.log}),
		Reboot: func(context.Context) error { return errors.New("this test has no reboot") },
	}
	return h
}

// serve runs a server until the returned function is called.
func (h *host) serve(t *testing.T, adapt ...func(*control.Server)) (stop func()) {
	t.Helper()
	s := control.New(h.Options)
	for _, a := range adapt {
		a(s)
	}
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (h *host) client(t *testing.T) *control.Client {
	return control.NewClient(h.Socket, func(err error) { t.Logf("lost: %v", err) })
}

func ask(id string) control.Ask { return control.Ask{Request: lease.Request{ID: id}} }

func deaf(lease.Status) {}

// TestBeginAndEnd: a request waits for its place and tells why; the lease is shown, and ends when the host
// is healthy.
func TestBeginAndEnd(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.serve(t)
	c := h.client(t)
	h.Refuse(&lease.Refusal{Kind: lease.Budget, Reason: "the budget is used up"})
	var told []string
	want := lease.Request{ID: "a", Reason: "patch", For: 3 * time.Hour, Drain: time.Millisecond, MinHealthy: time.Minute, Job: "j1"}
	status, err := c.Begin(t.Context(), control.Ask{Request: want}, func(s lease.Status) {
		told = append(told, string(s.State))
		if s.State == lease.Asked && s.Waits.Reason == "the budget is used up" {
			h.Refuse(nil)
		}
	})
	if err != nil || status.State != lease.Ready || status.ID != "a" || status.Reason != "patch" {
		t.Fatalf("Begin = %+v, %v", status, err)
	}
	if got := strings.Join(told, " "); got != "asked draining" {
		t.Errorf("told %q", got)
	}
	if got := h.Requests(); len(got) != 1 || got[0] != want {
		t.Errorf("the holder was asked %+v, want %+v", got, want)
	}
	if got, err := c.Status(t.Context()); err != nil || got != status {
		t.Errorf("Status = %+v, %v, want %+v", got, err, status)
	}
	for _, text := range []string{fmt.Sprintf("uid=%d ", os.Getuid()), fmt.Sprintf("pid=%d ", os.Getpid())} {
		if !strings.Contains(h.log.String(), text) {
			t.Errorf("the log does not say who asked (%s):\n%s", text, h.log)
		}
	}

	h.Sicken("check web is critical")
	told = nil
	err = c.End(t.Context(), "", 0, func(s lease.Status) {
		told = append(told, s.Waits.Reason)
		h.Sicken("")
	})
	if err != nil || len(told) != 1 || told[0] != "check web is critical" {
		t.Errorf("End = %v, told %q", err, told)
	}
	if got := h.Status(); got.State != lease.None {
		t.Errorf("the lease is %+v", got)
	}
	if err := c.End(t.Context(), "a", time.Minute, deaf); err != nil {
		t.Errorf("End without a lease: %v", err)
	}
}

// TestRefused: what the holder says reaches the client as it is.
func TestRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.serve(t)
	c := h.client(t)
	want := lease.Refusal{Kind: lease.NoOrchestrator, Reason: "no orchestrator runs", Final: true, At: time.Unix(1e9, 0).UTC()}
	h.Refuse(&want)
	var got *lease.Refusal
	if _, err := c.Begin(t.Context(), ask("a"), deaf); !errors.As(err, &got) || *got != want {
		t.Errorf("Begin = %v", err)
	}
	h.Refuse(nil)
	if _, err := c.Begin(t.Context(), ask("a"), deaf); err != nil {
		t.Fatal(err)
	}
	if err := c.End(t.Context(), "b", 0, deaf); !errors.As(err, &got) || got.Kind != lease.HeldByOther {
		t.Errorf("End of another: %v", err)
	}
	h.Sicken("check web is critical")
	if err := c.End(t.Context(), "a", time.Millisecond, deaf); !errors.As(err, &got) || got.Kind != lease.NotHealthy {
		t.Errorf("End of a host that is not healthy: %v", err)
	}
	if _, err := c.Begin(t.Context(), ask(strings.Repeat("x", lease.MostID+1)), deaf); !errors.As(err, &got) || got.Kind != lease.InvalidRequest {
		t.Errorf("Begin with a long ID: %v", err)
	}
}

// TestTimeout: a request without a place ends with what it waited for; a drain is not part of that time.
func TestTimeout(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.serve(t, func(s *control.Server) { s.ReadWithin(500 * time.Millisecond) }) // which is about the request alone
	c := h.client(t)
	a := ask("a")
	a.Timeout = 20 * time.Millisecond
	h.Refuse(&lease.Refusal{Kind: lease.Budget, Reason: "the budget is used up"})
	var got *lease.Refusal
	if _, err := c.Begin(t.Context(), a, deaf); !errors.As(err, &got) || got.Kind != lease.Budget || got.Final {
		t.Errorf("Begin = %v", err)
	}
	h.Refuse(&lease.Refusal{Kind: lease.Freeze, Reason: "weekend", At: time.Now().Add(time.Hour)})
	if _, err := c.Begin(t.Context(), a, deaf); !errors.As(err, &got) || got.Kind != lease.Freeze || !got.Final {
		t.Errorf("Begin in a freeze that is longer: %v", err)
	}
	h.Refuse(nil)
	a.Timeout, a.Drain = time.Second, 1500*time.Millisecond
	if _, err := c.Begin(t.Context(), a, deaf); err != nil {
		t.Errorf("Begin with a drain that is longer: %v", err)
	}
}

// TestOnce: a request that asks once waits until there is an answer, and does not wait for a place.
func TestOnce(t *testing.T) {
	t.Parallel()
	a := ask("a")
	a.Once = true
	var got *lease.Refusal
	t.Run("no place", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.serve(t, func(s *control.Server) { s.AnswerOnce(time.Hour) })
		h.Refuse(&lease.Refusal{Kind: lease.Waiting, Reason: "the orchestrator's answer"})
		_, err := h.client(t).Begin(t.Context(), a, func(s lease.Status) {
			if s.Waits.Kind == lease.Waiting {
				h.Refuse(&lease.Refusal{Kind: lease.Budget, Reason: "the budget is used up"})
			}
		})
		if got := new(lease.Refusal); !errors.As(err, &got) || got.Kind != lease.Budget {
			t.Errorf("Begin = %v", err)
		}
	})
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.serve(t, func(s *control.Server) { s.AnswerOnce(time.Millisecond) })
		h.Refuse(&lease.Refusal{Kind: lease.Waiting, Reason: "the orchestrator's answer"})
		if _, err := h.client(t).Begin(t.Context(), a, deaf); !errors.As(err, &got) || got.Kind != lease.Waiting {
			t.Errorf("Begin = %v", err)
		}
	})
	t.Run("a place", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.serve(t, func(s *control.Server) { s.AnswerOnce(time.Hour) })
		if status, err := h.client(t).Begin(t.Context(), a, deaf); err != nil || status.State != lease.Ready {
			t.Errorf("Begin = %+v, %v", status, err)
		}
	})
}

// TestGone: a client that leaves while it waits asks for nothing any longer; one with a lease keeps it.
func TestGone(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.serve(t)
	h.Refuse(&lease.Refusal{Kind: lease.Budget, Reason: "the budget is used up"})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	if _, err := h.client(t).Begin(ctx, ask("a"), func(lease.Status) { leave() }); !errors.Is(err, context.Canceled) {
		t.Errorf("Begin = %v", err)
	}
	consultest.Eventually(t, "the end of the request", func(context.Context) error {
		if n := h.Open(); n > 0 {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
	h.Refuse(nil)
	if _, err := h.client(t).Begin(t.Context(), ask("a"), deaf); err != nil {
		t.Fatal(err)
	}
	if _, err := h.client(t).Begin(t.Context(), ask("a"), deaf); err != nil {
		t.Errorf("again: %v", err)
	}
}

func ends(t *testing.T, h *host) {
	t.Helper()
	consultest.Eventually(t, "the end of the lease", func(context.Context) error {
		if s := h.Status(); s.State != lease.None {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
}

func notOver(t *testing.T) func(*lease.Refusal) {
	return func(r *lease.Refusal) { t.Errorf("the lease was over before: %v", r) }
}

// TestHoldEnded: the client that holds a lease hears of it when another client ends it.
func TestHoldEnded(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.serve(t)
	over := make(chan *lease.Refusal, 1)
	held, err := h.client(t).Hold(t.Context(), ask("run"), deaf, func(r *lease.Refusal) { over <- r })
	if err != nil {
		t.Fatal(err)
	}
	if err := h.client(t).End(t.Context(), "", 0, deaf); err != nil {
		t.Fatal(err)
	}
	if r := <-over; !r.Final {
		t.Errorf("%+v", r)
	}
	held.Close()
}

// TestRebootInHold: the end of the connection, and a command that ends the lease by its ID, do not bring a host
// back into service that is being rebooted.
func TestRebootInHold(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.Options.Reboot = func(context.Context) error { return nil }
	h.serve(t)
	held, err := h.client(t).Hold(t.Context(), ask("run"), deaf, notOver(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.client(t).Reboot(t.Context(), ask("run"), deaf, func() {}); err != nil {
		t.Fatal(err)
	}
	held.Close()
	var refusal *lease.Refusal
	if err := h.client(t).End(t.Context(), "run", 0, deaf); !errors.As(err, &refusal) {
		t.Errorf("the end = %v", err)
	}
	consultest.Eventually(t, "the end of the connection", func(context.Context) error {
		if n := h.Open(); n > 0 {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
	if s := h.Status(); s.State != lease.Ready {
		t.Errorf("the lease is %+v", s)
	}
	if err := h.client(t).End(t.Context(), "", 0, deaf); err != nil { // the operator, of a host that was not rebooted
		t.Fatal(err)
	}
}

// TestHold: a lease that is held ends with its connection, and outlives a restart of the agent.
func TestHold(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	stop := h.serve(t)
	held, err := h.client(t).Hold(t.Context(), ask("run"), deaf, notOver(t))
	if err != nil {
		t.Fatal(err)
	}
	if s := h.Status(); s.State != lease.Ready {
		t.Errorf("the lease is %+v", s)
	}
	stop()
	if s := h.Status(); s.State != lease.Ready {
		t.Errorf("after the agent's stop the lease is %+v", s)
	}
	h.serve(t)
	consultest.Eventually(t, "the client", func(context.Context) error {
		if n := len(h.Requests()); n < 2 {
			return fmt.Errorf("the next agent was not asked")
		}
		return nil
	})
	if s := h.Status(); s.State != lease.Ready {
		t.Errorf("after the restart the lease is %+v", s)
	}
	held.Close()
	ends(t, h)

	ctx, interrupt := context.WithCancel(t.Context())
	h.Refuse(&lease.Refusal{Kind: lease.Budget, Reason: "the budget is used up"})
	if _, err := h.client(t).Hold(ctx, ask("run"), func(lease.Status) { interrupt() }, notOver(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("Hold that was interrupted: %v", err)
	}
}

// TestRestart: a request that waits continues with the next agent.
func TestRestart(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	stop := h.serve(t)
	h.Refuse(&lease.Refusal{Kind: lease.Budget, Reason: "the budget is used up"})
	asked := make(chan error, 1)
	go func() {
		_, err := h.client(t).Begin(t.Context(), ask("a"), deaf)
		asked <- err
	}()
	consultest.Eventually(t, "the request", func(context.Context) error {
		if h.Open() == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	stop()
	h.Refuse(nil)
	h.serve(t)
	if err := <-asked; err != nil {
		t.Errorf("Begin = %v", err)
	}
}

// TestReboot: the host is rebooted when it may be; where that fails it is back in service.
func TestReboot(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	reboots := 0
	failure := error(nil)
	h.Options.Reboot = func(context.Context) error {
		if s := h.Status(); s.State != lease.Ready {
			t.Errorf("a reboot while the lease is %+v", s)
		}
		reboots++
		return failure
	}
	h.serve(t)
	c := h.client(t)
	told := 0
	if err := c.Reboot(t.Context(), ask("a"), deaf, func() { told++ }); err != nil || reboots != 1 || told != 1 {
		t.Errorf("Reboot = %v, %d reboots, told %d times", err, reboots, told)
	}
	if s := h.Status(); s.State != lease.Ready {
		t.Errorf("the lease is %+v", s)
	}
	failure = errors.New("no systemd")
	if err := c.Reboot(t.Context(), ask("a"), deaf, func() {}); err == nil || err.Error() != "no systemd" {
		t.Errorf("Reboot = %v", err)
	}
	ends(t, h)
	h.Refuse(&lease.Refusal{Kind: lease.Paused, Reason: "paused", Final: true})
	if err := c.Reboot(t.Context(), ask("a"), deaf, func() {}); err == nil || err.Error() != "paused" || reboots != 2 {
		t.Errorf("Reboot = %v, %d reboots", err, reboots)
	}
}

// TestSocket: who may connect, and what is there before.
func TestSocket(t *testing.T) {
	t.Parallel()
	mode := func(t *testing.T, path string, want fs.FileMode, group int) {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil || info.Mode() != want|fs.ModeSocket || int(info.Sys().(*syscall.Stat_t).Gid) != group {
			t.Errorf("%v, %v, want mode %v and group %d", info, err, want, group)
		}
	}
	works := func(t *testing.T, h *host) {
		t.Helper()
		if _, err := h.client(t).Status(t.Context()); err != nil {
			t.Error(err)
		}
	}
	t.Run("mode", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		stop := h.serve(t)
		mode(t, h.Socket, 0o600, os.Getegid())
		stop()
		if _, err := os.Lstat(h.Socket); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after the stop: %v", err)
		}
	})
	t.Run("group", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.Group = strconv.Itoa(os.Getegid())
		h.serve(t)
		mode(t, h.Socket, 0o660, os.Getegid())
		works(t, h)
	})
	t.Run("group in a directory of its own", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.Group = strconv.Itoa(os.Getegid())
		dir := filepath.Dir(h.Socket)
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		h.serve(t)
		if want := "its members cannot enter the directory " + dir; !strings.Contains(h.log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, h.log)
		}
	})
	t.Run("unknown group", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.Group = "no-such-group"
		h.serve(t)
		mode(t, h.Socket, 0o600, os.Getegid())
		if !strings.Contains(h.log.String(), "unknown group no-such-group") {
			t.Errorf("the log does not say it: %s", h.log)
		}
	})
	t.Run("stale", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		old, err := net.ListenUnix("unix", &net.UnixAddr{Name: h.Socket})
		if err != nil {
			t.Fatal(err)
		}
		old.SetUnlinkOnClose(false)
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		h.serve(t)
		works(t, h)
	})
	t.Run("another agent", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.serve(t)
		if err := control.New(h.Options).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another jorc agent listens there") {
			t.Errorf("Run = %v", err)
		}
		works(t, h)
	})
	t.Run("another program", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		other, err := net.Listen("unix", h.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if err := control.New(h.Options).Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "another program listens there") {
			t.Errorf("Listen = %v", err)
		}
		if conn, err := net.Dial("unix", h.Socket); err != nil {
			t.Errorf("the other program: %v", err)
		} else {
			_ = conn.Close()
		}
	})
	t.Run("a file", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		if err := os.WriteFile(h.Socket, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := control.New(h.Options).Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "not a socket") {
			t.Errorf("Listen = %v", err)
		}
		if data, err := os.ReadFile(h.Socket); string(data) != "mine" {
			t.Errorf("the file has %q, %v", data, err)
		}
	})
	t.Run("long path", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.Socket = filepath.Join(filepath.Dir(h.Socket), strings.Repeat("d", 200), strings.Repeat("e", 200), strings.Repeat("n", 64))
		h.serve(t)
		mode(t, h.Socket, 0o600, os.Getegid())
		works(t, h)
	})
}

// TestNoAgent: the error says what to do.
func TestNoAgent(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, err := h.client(t).Status(t.Context())
	want := "no jorc agent answers at " + h.Socket + ": no such file or directory: start it (systemctl start jorc), or give its own --config"
	if !errors.Is(err, control.ErrNoAgent) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	h.serve(t)()
	if err := h.client(t).End(t.Context(), "", 0, deaf); !errors.Is(err, control.ErrNoAgent) {
		t.Errorf("after the stop: %v", err)
	}
}

// TestWrongRequests: requests of other programs and versions are refused with what to do.
func TestWrongRequests(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.serve(t)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", h.Socket)
	}}}
	for _, test := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"POST", "/v2/lease/begin", `{}`, 404, "this agent (jorc v1) does not know POST /v2/lease/begin"},
		{"GET", "/v1/lease/begin", ``, 404, "does not know GET /v1/lease/begin"},
		{"POST", "/v1/lease/begin", `{"id":"a","during_freeze":"x"}`, 400, `unknown field \"during_freeze\": the command is of another version: upgrade jorc`},
		{"POST", "/v1/lease/begin", `{"id":"a"} {}`, 400, "there is more behind it"},
		{"POST", "/v1/lease/begin", `{"id":"a","for":"2"}`, 400, "missing unit"},
		{"POST", "/v1/lease/begin", ``, 400, "EOF"},
		{"POST", "/v1/lease/end", `{"id":"` + strings.Repeat("x", 16<<10) + `"}`, 400, "too large"},
		{"POST", "/v1/lease/begin", `{}`, 200, `"kind":"invalid_request"`},
	} {
		r, err := http.NewRequestWithContext(t.Context(), test.method, "http://agent"+test.path, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != test.code || !strings.Contains(string(body), test.want) {
			t.Errorf("%s %s %.40s: %d %s, %v, want %d and %q", test.method, test.path, test.body, resp.StatusCode, body, err, test.code, test.want)
		}
	}
	if got := h.Requests(); len(got) != 0 {
		t.Errorf("the holder was asked %+v", got)
	}
}

// TestOtherAgents: a client of an agent of another version says so.
func TestOtherAgents(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ answer, want string }{
		"no such request": {"HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\n\r\nnot found\n", "it is of another version: restart it"},
		"an explanation":  {"HTTP/1.1 404 Not Found\r\nContent-Length: 22\r\n\r\n{\"error\":\"upgrade it\"}", "upgrade it"},
		"no JSON":         {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n", "not JSON"},
		"nothing":         {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "has stopped before it answered"},
		"no HTTP":         {"SSH-2.0\r\n", "malformed HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			l, err := net.Listen("unix", h.Socket)
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			go func() {
				conn, err := l.Accept()
				if err == nil {
					_, _ = conn.Read(make([]byte, 4096)) // the request
					_, err = io.WriteString(conn, test.answer)
					err = errors.Join(err, conn.Close())
				}
				served <- err
			}()
			_, err = h.client(t).Status(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if err := errors.Join(<-served, l.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

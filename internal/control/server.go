package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/lease"
)

// Limits on the resources that clients use.
const (
	readWithin  = 10 * time.Second // a request
	writeWithin = 10 * time.Second // a line of an answer
	maxHeader   = 8 << 10
	maxRequests = 64 // at a time
	// lookEvery is how often an end looks what it waits for.
	lookEvery = time.Second
)

// Options are what a Server needs.
type Options struct {
	Socket  string // its path; the directory is made if it is missing
	Group   string // whose members may ask, too; empty: none
	Holder  lease.Holder
	Reboot  func(context.Context) error // reboots the host
	Version string                      // of this jorc, for clients of another one
	Log     hclog.Logger
}

// Server answers commands of this host.
type Server struct {
	o        Options
	once     time.Duration // OnceWithin
	read     time.Duration // readWithin
	requests chan struct{}
	running  sync.WaitGroup // handlers

	mu        sync.Mutex
	socket    *socket // nil: it does not listen
	rebooting string  // the ID of the lease for which the host is being rebooted; empty: none
}

// New returns a server that does not listen yet.
func New(o Options) *Server {
	return &Server{o: o, once: OnceWithin, read: readWithin, requests: make(chan struct{}, maxRequests)}
}

// Listen makes the socket, so that an unusable path is an error before the agent starts. Run or Close
// releases it. A second call does nothing.
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.socket != nil {
		return nil
	}
	bound, err := listen(ctx, s.o.Socket)
	if err != nil {
		return fmt.Errorf("control socket %s: %w", s.o.Socket, err)
	}
	if err := bound.admit(s.o.Group); err != nil {
		s.o.Log.Warn("only root and the agent's user can use the control socket", "socket", s.o.Socket, "group", s.o.Group, "error", err)
	}
	s.socket = bound
	return nil
}

// Close removes the socket of a server if Run is not called.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.socket == nil {
		return nil
	}
	err := s.socket.close()
	s.socket = nil
	if err != nil {
		return fmt.Errorf("control socket %s: close: %w", s.o.Socket, err)
	}
	return nil
}

// Run answers until ctx ends; then it ends all answers, removes the socket and returns nil. Leases stay as
// they are. It calls Listen if the server does not listen yet, and returns the errors of that and of a
// broken listener.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	bound := s.socket
	s.mu.Unlock()
	server := &http.Server{
		Handler: s.handler(ctx), ReadTimeout: s.read, IdleTimeout: s.read, MaxHeaderBytes: maxHeader,
		ConnContext: withPeer,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    s.o.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // errors of connections that end anyway
	defer stop()
	err := server.Serve(bound)
	s.running.Wait()
	if closed := s.Close(); ctx.Err() != nil {
		return closed
	}
	return fmt.Errorf("control socket %s: %w", s.o.Socket, err)
}

// handler returns the server's handler; life ends with the server.
func (s *Server) handler(life context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathBegin, func(w http.ResponseWriter, r *http.Request) { s.begin(life, w, r) })
	mux.HandleFunc("POST "+pathEnd, func(w http.ResponseWriter, r *http.Request) { s.end(life, w, r) })
	mux.HandleFunc("GET "+pathStatus, func(w http.ResponseWriter, _ *http.Request) {
		status := s.o.Holder.Status()
		newAnswer(w).send(message{Status: &status})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, http.StatusNotFound, "this agent (jorc %s) does not know %s %s: the command is of another version: upgrade jorc on this host and restart its agent (systemctl restart jorc)",
			s.o.Version, r.Method, r.URL.Path)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.requests <- struct{}{}:
		default:
			s.refuse(w, http.StatusServiceUnavailable, "more than %d commands ask this agent at the same time: try again later", maxRequests)
			return
		}
		s.running.Add(1)
		defer func() {
			s.running.Done()
			<-s.requests
		}()
		mux.ServeHTTP(w, r)
	})
}

// refuse answers a request that is not understood, or not now.
func (s *Server) refuse(w http.ResponseWriter, code int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(message{Error: fmt.Sprintf(format, args...)}) // the client may have left
}

// decode reads a request strictly: a field that this agent does not know may change what is asked for.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.DisallowUnknownFields()
		if err = decoder.Decode(into); err == nil && len(bytes.TrimSpace(body[decoder.InputOffset():])) > 0 {
			err = errors.New("there is more behind it")
		}
	}
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "this agent (jorc %s) does not understand the request: %v: the command is of another version: upgrade jorc on this host and restart its agent (systemctl restart jorc)",
			s.o.Version, err)
		return false
	}
	return true
}

// begin answers a request to begin. life ends with the server.
func (s *Server) begin(life context.Context, w http.ResponseWriter, r *http.Request) {
	var q beginRequest
	if !s.decode(w, r, &q) {
		return
	}
	asker := peerOf(r.Context())
	log := s.o.Log.With("id", q.ID, "uid", asker.uid, "pid", asker.pid)
	log.Info("a command asks to take this host out of service", "reason", q.Reason, "reboot", q.Reboot)
	a := newAnswer(w)
	status, err := s.ask(r.Context(), &q, func(now lease.Status) {
		if ready := now.State == lease.Ready; !ready && now.State != lease.Covered || ready && q.Connected {
			a.send(message{Status: &now}) // other clients go ahead when the call has returned
		}
	})
	if q.Reboot && err == nil && status.State == lease.Covered {
		err = &lease.Refusal{Kind: lease.InsideJob, Final: true, Reason: "a task has its host rebooted by its exit code 194, where the workflow says reboots = true"}
	}
	switch {
	case err != nil && life.Err() != nil:
		return // the client asks the next agent
	case q.Connected && r.Context().Err() != nil:
		s.abandon(life, q.ID, log)
		return
	case err != nil:
		log.Info("this host stays in service", "error", err)
		s.withdraw(life, &q)
		a.fail(err)
		return
	}
	log.Info("the command may go ahead", "state", string(status.State))
	switch {
	case q.Reboot:
		s.reboot(life, r.Context(), a, &q, log)
	default:
		a.send(message{Status: &status})
	}
}

// ask begins a lease for a request, and waits for its place for as long as that says.
func (s *Server) ask(ctx context.Context, q *beginRequest, told func(lease.Status)) (lease.Status, error) {
	if q.Timeout == nil {
		return s.o.Holder.Begin(ctx, q.lease(), told)
	}
	within, once := time.Duration(*q.Timeout), *q.Timeout == 0
	if once {
		within = s.once
	}
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	timer := time.AfterFunc(within, giveUp)
	defer timer.Stop()
	waiting := &placeContext{Context: ctx, until: time.Now().Add(within)}
	return s.o.Holder.Begin(waiting, q.lease(), func(now lease.Status) {
		switch {
		case now.State != lease.Asked && now.State != lease.None:
			timer.Stop() // it has its place: a drain takes its time
			waiting.placed()
		case once && now.Waits != nil && now.Waits.Kind != lease.Waiting:
			giveUp() // this is the answer
		}
		told(now)
	})
}

// placeContext has the deadline of a wait for a place, until there is one.
type placeContext struct {
	context.Context
	mu    sync.Mutex
	until time.Time
}

// Deadline implements context.Context.
func (c *placeContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until.IsZero() {
		return c.Context.Deadline()
	}
	return c.until, true
}

func (c *placeContext) placed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = time.Time{}
}

// reboot reboots the host for a client that is still there. Where that fails the lease ends.
func (s *Server) reboot(life, client context.Context, a *answer, q *beginRequest, log hclog.Logger) {
	if client.Err() != nil {
		s.abandon(life, q.ID, log)
		return
	}
	s.setRebooting(q.ID)
	a.send(message{Rebooting: true})
	log.Warn("this host is rebooted", "reason", q.Reason)
	if err := s.o.Reboot(context.WithoutCancel(client)); err != nil {
		log.Error("this host is not rebooted", "error", err)
		s.setRebooting("")
		a.fail(err)
		s.abandon(life, q.ID, log)
		return
	}
	a.send(message{Done: true})
}

// withdraw ends a request that was refused, and would be kept for a connection that comes back. That takes no time for
// one that has no place.
func (s *Server) withdraw(life context.Context, q *beginRequest) {
	if now := s.o.Holder.Status(); !q.Connected || now.ID != q.ID || now.State != lease.Asked {
		return
	}
	_ = s.o.Holder.End(life, q.ID) // its errors are about leases with a place, or of another ID
}

func (s *Server) setRebooting(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rebooting = id
}

// isRebooting reports whether the host is being rebooted for the lease of id: the ends of commands, which
// the shutdown stops, do not end that lease then.
func (s *Server) isRebooting(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return id != "" && s.rebooting == id
}

// abandon ends the lease of a client that has left. When the agent stops, the lease stays: the client asks
// the next agent for it.
func (s *Server) abandon(life context.Context, id string, log hclog.Logger) {
	if life.Err() != nil || s.isRebooting(id) {
		return
	}
	log.Info("the command has ended, and so does the time out of service of this host")
	var refusal *lease.Refusal
	if err := s.o.Holder.End(life, id); errors.As(err, &refusal) && refusal.Kind == lease.HeldByOther {
		return // it had ended
	} else if err != nil && life.Err() == nil {
		log.Warn("this host is not back in service yet", "error", err)
	}
}

// end answers a request to end. While it waits it tells what for.
func (s *Server) end(life context.Context, w http.ResponseWriter, r *http.Request) {
	var q endRequest
	if !s.decode(w, r, &q) {
		return
	}
	asker := peerOf(r.Context())
	s.o.Log.Info("a command puts this host back in service", "id", q.ID, "uid", asker.uid, "pid", asker.pid)
	a := newAnswer(w)
	if s.isRebooting(q.ID) {
		a.fail(&lease.Refusal{Kind: lease.NotHealthy, Reason: "this host is being rebooted, and its lease ends after that"})
		return
	}
	ctx := r.Context()
	if q.Timeout != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*q.Timeout))
		defer cancel()
	}
	ended := make(chan error, 1)
	go func() { ended <- s.o.Holder.End(ctx, q.ID) }()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			switch {
			case err == nil:
				a.send(message{Done: true})
			case life.Err() == nil: // else the client asks the next agent
				a.fail(err)
			}
			return
		case <-ticker.C:
			status := s.o.Holder.Status()
			a.sendChanged(message{Status: &status})
		}
	}
}

// answer writes lines. It is safe for concurrent use.
type answer struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
	last    []byte
}

func newAnswer(w http.ResponseWriter) *answer {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	return &answer{w: w, control: http.NewResponseController(w)}
}

// send writes a line. A client that has left ends the request's context.
func (a *answer) send(m message) { a.write(m, false) }

// sendChanged writes a line that differs from the one before.
func (a *answer) sendChanged(m message) { a.write(m, true) }

func (a *answer) write(m message, changed bool) {
	line, err := json.Marshal(m)
	if err != nil {
		line = []byte(`{"error":"the answer cannot be written as JSON"}`)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if changed && bytes.Equal(a.last, line) {
		return
	}
	a.last = line
	if err := a.control.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return
	}
	if _, err := a.w.Write(append(line, '\n')); err == nil {
		_ = a.control.Flush() // as above
	}
}

// fail writes the last line of a request that did not succeed.
func (a *answer) fail(err error) {
	var refusal *lease.Refusal
	if errors.As(err, &refusal) {
		a.send(message{Refusal: refusal})
		return
	}
	a.send(message{Error: err.Error()})
}

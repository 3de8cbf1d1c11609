package control

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/lease"
)

// ErrNoAgent is wrapped by the errors of a Client when no agent answers on the socket.
var ErrNoAgent = errors.New("no jorc agent answers")

// agentWithin is how long a client waits for an agent that has answered before: longer than a restart takes
// by systemd, which gives the old one 45 s to stop.
const agentWithin = 2 * time.Minute

// Ask is a request to begin.
type Ask struct {
	lease.Request
	Timeout time.Duration // how long to wait for a place; 0: for ever
	Once    bool          // do not wait for a place longer than the answer takes, at most OnceWithin
}

func (a *Ask) request() *beginRequest {
	q := &beginRequest{
		ID: a.ID, Reason: a.Reason, For: span(a.For), Drain: span(a.Drain), MinHealthy: span(a.MinHealthy), Job: a.Job,
	}
	if a.Once || a.Timeout > 0 {
		timeout := span(a.Timeout)
		if a.Once {
			timeout = 0
		}
		q.Timeout = &timeout
	}
	return q
}

// Client asks the agent of this host.
type Client struct {
	socket string
	http   *http.Client
	lost   func(error)
}

// NewClient returns a client of the agent that listens on socket. lost is called with the reason when the agent
// stops before it has answered, and the client waits for the next one.
func NewClient(socket string, lost func(error)) *Client {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dial(ctx, socket)
	}}
	return &Client{socket: socket, http: &http.Client{Transport: transport}, lost: lost}
}

// Status returns the lease of this host.
func (c *Client) Status(ctx context.Context) (lease.Status, error) {
	s, err := c.open(ctx, http.MethodGet, pathStatus, nil)
	if err != nil {
		return lease.Status{}, err
	}
	defer s.close()
	m, err := s.next()
	if err == nil && m.Status == nil {
		err = c.unknown("an answer without a status")
	}
	if err != nil {
		return lease.Status{}, err
	}
	return *m.Status, nil
}

// Begin asks for a lease and waits until the caller may go ahead; told gets what it waits for. Errors are
// a *lease.Refusal, ErrNoAgent, or ctx's.
func (c *Client) Begin(ctx context.Context, a Ask, told func(lease.Status)) (lease.Status, error) {
	s, status, err := c.ready(ctx, a.request(), told)
	if err != nil {
		return status, err
	}
	s.close()
	return status, nil
}

// Reboot asks for a lease and has the agent reboot the host then. rebooting is called when it does.
func (c *Client) Reboot(ctx context.Context, a Ask, told func(lease.Status), rebooting func()) error {
	q := a.request()
	q.Reboot = true
	s, _, err := c.ready(ctx, q, told)
	if err != nil {
		return err
	}
	defer s.close()
	rebooting()
	m, err := s.next()
	switch {
	case err != nil && ctx.Err() == nil && errors.Is(err, errBroken):
		return nil // the agent is stopped for the reboot
	case err != nil:
		return err
	case !m.Done:
		return c.unknown("an answer about the reboot")
	}
	return nil
}

// Hold is Begin for a lease that ends when this process does, or Close is called. When the agent restarts,
// Held asks the next one for it. over is called when the lease ends before that.
func (c *Client) Hold(ctx context.Context, a Ask, told func(lease.Status), over func(*lease.Refusal)) (*Held, error) {
	connected, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	q := a.request()
	q.Connected = true
	s, _, err := c.ready(connected, q, told)
	if err != nil {
		cancel()
		return nil, cmp.Or(ctx.Err(), err)
	}
	h := &Held{cancel: cancel, done: make(chan struct{})}
	q.Timeout = nil
	go func() {
		defer close(h.done)
		h.keep(connected, c, s, q, over)
	}()
	return h, nil
}

// Held is a lease that lasts as long as its connection.
type Held struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Close ends the connection, and with it the lease. It does not wait for the host's health.
func (h *Held) Close() {
	h.cancel()
	<-h.done
}

// keep holds the connection until ctx ends.
func (h *Held) keep(ctx context.Context, c *Client, s *stream, q *beginRequest, over func(*lease.Refusal)) {
	for pauses := concurrency.NewBackoff(time.Second, time.Minute); ; {
		for {
			m, err := s.next()
			if m.Refusal != nil {
				s.close()
				if ctx.Err() == nil {
					over(m.Refusal)
				}
				return
			}
			if err != nil {
				break
			}
		}
		s.close()
		for {
			if ctx.Err() != nil {
				return
			}
			var err error
			if s, _, err = c.ready(ctx, q, func(lease.Status) {}); err == nil {
				pauses.Reset()
				break
			}
			if ctx.Err() == nil {
				c.lost(err)
				_ = pauses.Wait(ctx) // the loop ends with ctx
			}
		}
	}
}

// End ends the lease of id, or any if that is empty, and waits until the host is healthy, for at most timeout;
// 0: for ever. told gets what it waits for. Errors are those of Begin.
func (c *Client) End(ctx context.Context, id string, timeout time.Duration, told func(lease.Status)) error {
	q := &endRequest{ID: id}
	if timeout > 0 {
		within := span(timeout)
		q.Timeout = &within
	}
	within := limit{q.Timeout, time.Now()}
	return c.repeat(ctx, func() error {
		q.Timeout = within.left()
		s, err := c.open(ctx, http.MethodPost, pathEnd, q)
		if err != nil {
			return err
		}
		defer s.close()
		for {
			switch m, err := s.next(); {
			case err != nil:
				return err
			case m.Done:
				return nil
			case m.Status != nil:
				told(*m.Status)
			}
		}
	})
}

// ready asks until the caller may go ahead. The stream is open then.
func (c *Client) ready(ctx context.Context, q *beginRequest, told func(lease.Status)) (s *stream, status lease.Status, err error) {
	within := limit{q.Timeout, time.Now()}
	err = c.repeat(ctx, func() (err error) {
		q.Timeout = within.left()
		if s, err = c.open(ctx, http.MethodPost, pathBegin, q); err != nil {
			return err
		}
		if status, err = s.ready(q.Reboot, told); err != nil {
			s.close()
		}
		return err
	})
	return s, status, err
}

// limit is a timeout that counts from its beginning, across agents.
type limit struct {
	timeout *span // nil: none, 0: ask once
	begin   time.Time
}

// left is what is left of it.
func (l limit) left() *span {
	if l.timeout == nil || *l.timeout == 0 {
		return l.timeout
	}
	left := span(max(time.Duration(*l.timeout)-time.Since(l.begin), time.Millisecond))
	return &left
}

// repeat calls attempt again when the agent stops before it has answered.
func (c *Client) repeat(ctx context.Context, attempt func() error) error {
	var there time.Time // when there was an agent; zero: there was none
	for pauses := concurrency.NewBackoff(200*time.Millisecond, 5*time.Second); ; {
		err := attempt()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errBroken):
			there = time.Now()
		case !errors.Is(err, ErrNoAgent), time.Since(there) > agentWithin:
			return err
		}
		c.lost(err)
		if err := pauses.Wait(ctx); err != nil {
			return err
		}
	}
}

// errBroken is wrapped by the error of a connection that ended before the answer did.
var errBroken = errors.New("the agent has stopped")

func broken(err error) error { return fmt.Errorf("%w before it answered (%w)", errBroken, err) }

// stream is an answer.
type stream struct {
	c     *Client
	body  io.ReadCloser
	lines *bufio.Scanner
}

// open sends a request. Its errors wrap ErrNoAgent, or say what the agent does not understand.
func (c *Client) open(ctx context.Context, method, path string, body any) (*stream, error) {
	data := []byte{}
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
			return nil, broken(err)
		}
		return nil, c.noAgent(err)
	}
	s := &stream{c: c, body: resp.Body, lines: bufio.NewScanner(resp.Body)}
	s.lines.Buffer(nil, maxLine)
	if resp.StatusCode == http.StatusOK {
		return s, nil
	}
	defer s.close()
	if _, err := s.next(); err != nil && !errors.Is(err, errBroken) {
		return nil, err
	}
	return nil, c.unknown(fmt.Sprintf("status %d", resp.StatusCode))
}

func (c *Client) noAgent(err error) error {
	var dialing *net.OpError
	if errors.As(err, &dialing) {
		err = dialing.Err
	}
	if wrapped := errors.Unwrap(err); wrapped != nil { // without the URL
		err = wrapped
	}
	help := "start it (systemctl start jorc), or give its own --config"
	if errors.Is(err, os.ErrPermission) {
		help = "ask as root or the agent's user, or let a group ask with control { group } in its configuration"
	}
	return fmt.Errorf("%w at %s: %w: %s", ErrNoAgent, c.socket, err, help)
}

// unknown is about an answer that no jorc of this version gives.
func (c *Client) unknown(what string) error {
	return fmt.Errorf("the agent at %s: %s is not what this jorc expects: it is of another version: restart it (systemctl restart jorc)", c.socket, what)
}

func (s *stream) close() { _ = s.body.Close() } // nothing was written

// next reads a line. The errors are a *lease.Refusal, what the agent says, or wrap errBroken.
func (s *stream) next() (message, error) {
	if !s.lines.Scan() {
		err := s.lines.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			return message{}, s.c.unknown("a line of that length")
		}
		return message{}, broken(cmp.Or(err, io.ErrUnexpectedEOF))
	}
	var m message
	switch err := json.Unmarshal(s.lines.Bytes(), &m); {
	case err != nil:
		return m, s.c.unknown(fmt.Sprintf("an answer that is not JSON (%v)", err))
	case m.Refusal != nil:
		return m, m.Refusal
	case m.Error != "":
		return m, errors.New(m.Error)
	}
	return m, nil
}

// ready reads until the caller may go ahead, or the host is about to be rebooted.
func (s *stream) ready(reboot bool, told func(lease.Status)) (lease.Status, error) {
	var status lease.Status
	for {
		m, err := s.next()
		if err != nil {
			return status, err
		}
		switch {
		case m.Rebooting:
			return status, nil
		case m.Status == nil:
			return status, s.c.unknown("an answer without a status")
		}
		status = *m.Status
		if !reboot && (status.State == lease.Ready || status.State == lease.Covered) {
			return status, nil
		}
		told(status)
	}
}

// Package fleetlock speaks the FleetLock protocol (Zincati and others) for this host: a program asks before
// it reboots the host, and says when the host is back. It answers programs of root and of configured users of
// this host only, which the kernel's table of connections names.
package fleetlock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/text"
)

// Prefix begins the paths of the protocol. The base URL of a client is this, with the slash at its end.
const Prefix = "/fleetlock/"

const (
	pathPreReboot   = Prefix + "v1/pre-reboot"
	pathSteadyState = Prefix + "v1/steady-state"

	header      = "fleet-lock-protocol"
	maxBody     = 4 << 10
	maxRequests = 8 // at a time
	// holdFor is how long a request is held until the answer is yes. Clients give up after 30 s or later.
	holdFor = 20 * time.Second
	// keep is for how long a client keeps its place without a call: they ask about every five minutes.
	keep = 10 * time.Minute
)

// Kinds of answers, a short list because clients count them.
const (
	kindBudget         = "budget"
	kindFreeze         = "freeze"
	kindPaused         = "paused"
	kindNoOrchestrator = "no_orchestrator"
	kindNotHealthy     = "not_healthy"
	kindNotMember      = "not_member"
	kindHeldByOther    = "held_by_other"
	kindInvalid        = "invalid_request"
)

// answerTo returns the kind and the status of a refusal. All that may change by itself is 503.
func answerTo(kind lease.Kind) (string, int) {
	switch kind {
	case lease.Freeze:
		return kindFreeze, http.StatusServiceUnavailable
	case lease.Paused, lease.Held:
		return kindPaused, http.StatusServiceUnavailable
	case lease.NoOrchestrator, lease.Unreachable:
		return kindNoOrchestrator, http.StatusServiceUnavailable
	case lease.NotHealthy:
		return kindNotHealthy, http.StatusServiceUnavailable
	case lease.NotMember:
		return kindNotMember, http.StatusServiceUnavailable
	case lease.HeldByOther:
		return kindHeldByOther, http.StatusConflict
	case lease.InvalidRequest, lease.InsideJob:
		return kindInvalid, http.StatusBadRequest
	}
	return kindBudget, http.StatusServiceUnavailable // also lease.Waiting
}

// Options are what a Handler needs.
type Options struct {
	Holder lease.Holder
	Users  []string      // who may ask, besides root: names or numbers
	Drain  time.Duration // how long the host is in maintenance before the answer is yes
	Log    hclog.Logger
}

// Handler answers the requests of FleetLock clients on this host. Its server must listen on a loopback address, allow
// answers that take 20 s, and have http.LocalAddrContextKey in the context of requests, as a
// net/http.Server has.
type Handler struct {
	o     Options
	hold  time.Duration // holdFor
	slots chan struct{}
	mux   *http.ServeMux
}

// New returns a handler. A user that does not exist yet is logged, and may ask once it does.
func New(o Options) *Handler {
	for _, err := range Unknown(o.Users) {
		o.Log.Warn("a user of the fleetlock block cannot ask", "error", err)
	}
	h := &Handler{o: o, hold: holdFor, slots: make(chan struct{}, maxRequests), mux: http.NewServeMux()}
	h.mux.HandleFunc(pathPreReboot, h.answer(h.preReboot))
	h.mux.HandleFunc(pathSteadyState, h.answer(h.steadyState))
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h.refuse(w, http.StatusNotFound, kindInvalid, fmt.Sprintf("there is no %s: there are %s and %s; the base URL of a client ends with %s", r.URL.Path, pathPreReboot, pathSteadyState, Prefix))
	})
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	h.mux.ServeHTTP(w, r)
}

// client is who asks.
type client struct {
	ID    string `json:"id"`
	Group string `json:"group"`
}

// group matches the name of a group of hosts. It means nothing here, but is part of the protocol.
var group = text.Pattern(`^[a-zA-Z0-9.-]+$`)

// answer checks a request, and has do answer it while it is held.
func (h *Handler) answer(do func(ctx context.Context, c client, uid int) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case h.slots <- struct{}{}:
			defer func() { <-h.slots }()
		default:
			h.refuse(w, http.StatusServiceUnavailable, kindBudget, "too many requests at a time")
			return
		}
		uid, err := h.caller(r)
		if err != nil {
			h.o.Log.Debug("a FleetLock request was refused", "path", r.URL.Path, "error", err) // the client has the reason
			h.refuse(w, http.StatusForbidden, kindInvalid, err.Error())
			return
		}
		c, code, err := read(w, r)
		if err != nil {
			h.refuse(w, code, kindInvalid, err.Error())
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), h.hold)
		defer cancel()
		err = do(ctx, c, uid)
		var refusal *lease.Refusal
		switch {
		case err == nil:
			w.WriteHeader(http.StatusOK)
		case errors.As(err, &refusal):
			kind, code := answerTo(refusal.Kind)
			h.refuse(w, code, kind, refusal.Reason)
		default:
			h.refuse(w, http.StatusServiceUnavailable, kindNoOrchestrator, err.Error())
		}
	}
}

// preReboot answers yes when the host may be rebooted.
func (h *Handler) preReboot(ctx context.Context, c client, uid int) error {
	r := lease.Request{ID: c.ID, Reason: text.Line("FleetLock, group "+c.Group, lease.MostReason), Drain: h.o.Drain, Keep: keep}
	_, err := h.o.Holder.Begin(ctx, r, func(lease.Status) {})
	h.log(err, "a program may reboot this host", "a program may not reboot this host yet", c, uid)
	return err
}

// steadyState answers yes when the host is back in service.
func (h *Handler) steadyState(ctx context.Context, c client, uid int) error {
	err := h.o.Holder.End(ctx, c.ID)
	h.log(err, "a program says that this host is back in service", "a program says that this host is back, but it is not in service yet", c, uid)
	return err
}

func (h *Handler) log(err error, yes, no string, c client, uid int) {
	log := h.o.Log.With("id", c.ID, "group", c.Group, "uid", uid)
	if err != nil {
		log.Info(no, "reason", err)
		return
	}
	log.Info(yes)
}

// read decodes a request; code is the status of the answer to a wrong one.
func read(w http.ResponseWriter, r *http.Request) (c client, code int, err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return c, http.StatusMethodNotAllowed, fmt.Errorf("the method is %s: use POST", text.Printable(r.Method))
	}
	if r.Header.Get(header) != "true" {
		return c, http.StatusBadRequest, fmt.Errorf("the header %q is not \"true\"", header)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return c, http.StatusRequestEntityTooLarge, fmt.Errorf("the body has more than %d bytes", maxBody)
	}
	if err != nil {
		return c, http.StatusBadRequest, fmt.Errorf("read the body: %w", err)
	}
	var request struct {
		Params client `json:"client_params"`
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if err = decoder.Decode(&request); err == nil && len(bytes.TrimSpace(body[decoder.InputOffset():])) > 0 {
		err = errors.New("there is more behind the object")
	}
	c = request.Params
	switch {
	case err != nil:
		err = fmt.Errorf("the body is not the JSON of the protocol: %w", err)
	case c.ID == "":
		err = errors.New("client_params has no id")
	case c.Group == "":
		err = errors.New("client_params has no group")
	case !group().MatchString(c.Group):
		err = errors.New("the group has other characters than a-z, A-Z, 0-9, '.' and '-'")
	}
	return c, http.StatusBadRequest, err
}

// caller returns the user of the process at the other end of a request, if that may ask.
func (h *Handler) caller(r *http.Request) (uid int, err error) {
	server, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return 0, errors.New("it is not known who asks: the request came over no connection")
	}
	to, toErr := netip.ParseAddrPort(server.String())
	from, fromErr := netip.ParseAddrPort(r.RemoteAddr)
	if err := errors.Join(toErr, fromErr); err != nil {
		return 0, fmt.Errorf("it is not known who asks: %w", err)
	}
	if !from.Addr().Unmap().IsLoopback() {
		return 0, errors.New("only programs of this host may ask")
	}
	uid, err = owner(from, to)
	if err != nil {
		return 0, fmt.Errorf("it is not known who asks: %w", err)
	}
	if uid != 0 && !slices.ContainsFunc(h.o.Users, func(name string) bool {
		allowed, err := userID(name)
		return err == nil && allowed == uid
	}) {
		return uid, fmt.Errorf("user %d may not ask: name it in fleetlock { users }", uid)
	}
	return uid, nil
}

// refuse answers no.
func (h *Handler) refuse(w http.ResponseWriter, code int, kind, value string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(struct { // the client may have left
		Kind  string `json:"kind"`
		Value string `json:"value"`
	}{kind, value})
}

// Package control lets commands of a host ask its agent for a lease, over HTTP on a unix socket. The
// kernel says who asks: only root and the agent's user may connect, and the members of a group
// where the configuration names one.
//
//	POST /v1/lease/begin  asks for a lease and waits until the caller may go ahead
//	POST /v1/lease/end    ends the lease and waits until the host is healthy
//	GET  /v1/lease        the lease of this host
//
// Requests are JSON. Answers are lines of JSON, the last of which decides: a status, a refusal or an
// error. Server is the agent's side, Client that of the commands.
package control

import (
	"time"

	"github.com/jorc/jorc/internal/lease"
)

const (
	pathBegin  = "/v1/lease/begin"
	pathEnd    = "/v1/lease/end"
	pathStatus = "/v1/lease"

	maxRequest = 16 << 10 // bytes
	maxLine    = 64 << 10 // bytes of an answer's line
)

// OnceWithin is how long a request that asks once waits for an answer of the orchestrator: longer than
// it takes to plan, also for thousands of hosts.
const OnceWithin = 20 * time.Second

// span is a duration as its text, "1m30s".
type span time.Duration

func (s span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

func (s *span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = span(d)
	return err
}

// beginRequest is the body of a request to begin.
type beginRequest struct {
	ID         string `json:"id"`
	Reason     string `json:"reason,omitempty"`
	For        span   `json:"for,omitzero"`
	Drain      span   `json:"drain,omitzero"`
	MinHealthy span   `json:"min_healthy,omitzero"`
	Job        string `json:"job,omitempty"`
	Timeout    *span  `json:"timeout,omitempty"` // how long to wait for a place; absent: for ever, 0: ask once
	// Connected: the answer stays open, and the lease ends with the connection.
	Connected bool `json:"connected,omitempty"`
	Reboot    bool `json:"reboot,omitempty"` // the agent reboots the host when the caller may go ahead
}

// comeBack is how long a connected client has to ask the next agent: the lease ends after that.
const comeBack = 5 * time.Minute

func (q *beginRequest) lease() lease.Request {
	r := lease.Request{
		ID: q.ID, Reason: q.Reason, For: time.Duration(q.For), Drain: time.Duration(q.Drain), MinHealthy: time.Duration(q.MinHealthy), Job: q.Job,
	}
	if q.Connected {
		r.Connected, r.Keep = true, comeBack
	}
	return r
}

// endRequest is the body of a request to end.
type endRequest struct {
	ID      string `json:"id,omitempty"`      // empty: whose lease it ever is
	Timeout *span  `json:"timeout,omitempty"` // absent: until the host is healthy
}

// message is a line of an answer. One of its fields is set.
type message struct {
	Status    *lease.Status  `json:"status,omitempty"`
	Refusal   *lease.Refusal `json:"refusal,omitempty"`
	Rebooting bool           `json:"rebooting,omitempty"`
	Error     string         `json:"error,omitempty"`
	Done      bool           `json:"done,omitempty"` // of an end, and of a reboot
}

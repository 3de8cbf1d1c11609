package consul

import (
	"errors"
	"time"
)

// Stats is what the client knows of its own work.
type Stats struct {
	Connections    int       // open now
	MaxConnections int       // the budget
	Places         int       // of the budget: queries that may block at one time
	Watches        int       // blocking-query loops now running
	LastAnswer     time.Time // zero: none yet
	// UnreachableSince is zero while Consul answers.
	UnreachableSince time.Time
	Failures         uint64 // requests that failed for want of an answer
}

// Stats returns the present figures.
func (c *Client) Stats() Stats {
	return Stats{
		Connections: int(c.open.Load()), MaxConnections: c.max, Places: cap(c.budget.places), Watches: c.budget.watches(),
		LastAnswer: timeOf(c.lastAnswer.Load()), UnreachableSince: timeOf(c.unreachable.Load()),
		Failures: c.failures.Load(),
	}
}

// answered keeps score: a refusal is an answer too. An HTTP error of one
// request, say on a datacenter that cannot be reached, says nothing of others.
func (c *Client) answered(err error) {
	if errors.Is(err, ErrUnreachable) || errors.Is(err, ErrOutcomeUnknown) {
		c.failures.Add(1)
		if !outage(err) {
			c.gate.open()
			return
		}
		c.unreachable.CompareAndSwap(0, time.Now().UnixNano())
		c.gate.shut()
		if silent(err) {
			c.silent.Store(true)
		}
		return
	}
	var known *Error
	if err != nil && !errors.As(err, &known) {
		return // the caller gave up: that says nothing of Consul
	}
	c.lastAnswer.Store(time.Now().UnixNano())
	c.unreachable.Store(0)
	if c.silent.Swap(false) {
		c.budget.interrupt() // their connections may have died without a word
	}
	c.gate.open()
}

func timeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

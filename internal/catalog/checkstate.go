package catalog

import (
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

// expiredOutput begins the output that an agent gives a check whose heartbeats
// stopped.
const expiredOutput = "TTL expired"

// checkState is what is known of one check. It outlives changes of the check's
// definition, so that a reload makes no state jump.
type checkState struct {
	// sending is held while a heartbeat is under way, so that states reach the
	// agent in the order in which they came about.
	sending sync.Mutex

	mu      sync.Mutex
	spec    checkSpec
	live    bool   // the agent has the check: heartbeats make sense
	beaten  bool   // at least one heartbeat was taken since jorc's start
	status  string // "" while nothing is known
	held    string // output at the time of the last change of status: what heartbeats carry
	fresh   string // output of the last run
	streak  streak
	since   time.Time // of status
	lastRun time.Time
	took    time.Duration
	runs    uint64
	beats   uint64
	err     error // of the last heartbeat
}

// observe takes the result of one run.
func (c *checkState) observe(result, output string, now time.Time, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	c.lastRun, c.took, c.fresh = now, took, output
	status := c.spec.threshold.next(&c.streak, result)
	if status == "" || status == c.status {
		return
	}
	c.status, c.held, c.since = status, output, now
}

// learn takes what the agent says of the check. For one that Consul runs this
// is the truth. Of one that jorc runs it is what jorc itself said before a
// restart: while the state is the same, the same output goes on being sent.
func (c *checkState) learn(at *consul.AgentCheck, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.spec.runByJorc() {
		c.fresh = at.Output
		if c.status != at.Status {
			c.status, c.since = at.Status, now
		}
		return
	}
	if c.beaten || at.Output == "" || strings.HasPrefix(at.Output, expiredOutput) {
		return
	}
	switch c.status {
	case "":
		c.status, c.held, c.since = at.Status, at.Output, now
	case at.Status:
		c.held = at.Output
	}
}

// setLive says whether the agent has the check.
func (c *checkState) setLive(live bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = live
}

// heartbeat is what is to be sent; ok is false when nothing is.
func (c *checkState) heartbeat() (id, status, output string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spec.id, c.status, c.held, c.live && c.status != ""
}

// sent takes how a heartbeat went.
func (c *checkState) sent(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	if err == nil {
		c.beaten = true
		c.beats++
	}
}

// present is the state to register the check with, "" when none is known.
func (c *checkState) present() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *checkState) report() CheckStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := CheckStatus{
		ID: c.spec.id, Name: c.spec.name, Kind: c.spec.kind,
		State: c.status, Output: c.fresh, Since: c.since,
		LastRun: c.lastRun, Took: c.took, Runs: c.runs, Heartbeats: c.beats,
	}
	if c.err != nil {
		s.Error = c.err.Error()
	}
	return s
}

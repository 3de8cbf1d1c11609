// Package doctor examines what jorc depends on: Consul, its DNS, the token's
// rights, clocks, limits and this host's own files. Each finding has a remedy.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/rollout"
)

// DefaultTimeout bounds each request: servers that answer so late are slow, not away.
const DefaultTimeout = 10 * time.Second

// Status is the outcome of a check.
type Status string

// Outcomes of a check.
const (
	OK   Status = "ok"
	Warn Status = "warn" // works, with a limitation
	Fail Status = "fail" // jorc cannot do its work
	// Advise: nothing is wrong; the remedy is recommended.
	Advise Status = "advice"
	Skip   Status = "skip" // could not be checked, or does not apply
)

// Finding is what one check found.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy"` // empty if there is nothing to do
}

// Report holds all findings, in the order of the checks.
type Report struct {
	Reachable bool      `json:"reachable"` // Consul's HTTP API answered
	Findings  []Finding `json:"findings"`
}

// Failed reports whether any check failed.
func (r Report) Failed() bool {
	for _, f := range r.Findings {
		if f.Status == Fail {
			return true
		}
	}
	return false
}

// Options select what to examine.
type Options struct {
	Config *config.Config // the settings, read from Paths if those files are valid
	Paths  []string       // the given configuration files; may be empty
	// Problem is what is wrong with the configuration in Paths; nil: nothing.
	Problem error
	Timeout time.Duration // of each request; default DefaultTimeout
	// NoAgent is why no agent can run on this computer, which is not examined as a host
	// then; empty: one can.
	NoAgent string
}

// examination is one run of the doctor. Facts that several checks need are queried
// once.
type examination struct {
	Options
	client *consul.Client
	leader func() (string, error)
	took   time.Duration // how long leader took
	self   func() (consul.Self, error)
}

// Examine carries out all checks concurrently. It takes a few timeouts at most,
// even if nothing answers.
func Examine(ctx context.Context, client *consul.Client, o Options) Report {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	e := &examination{Options: o, client: client}
	e.leader = sync.OnceValues(func() (string, error) {
		begin := time.Now()
		defer func() { e.took = time.Since(begin) }()
		return bounded(ctx, o.Timeout, client.Leader)
	})
	e.self = sync.OnceValues(func() (consul.Self, error) { return bounded(ctx, o.Timeout, client.AgentSelf) })
	checks := []func(context.Context) []Finding{
		e.api, e.version, e.raft, e.node, e.dns, e.rights, e.limits, e.modes, e.clock,
		e.token, e.expiry, e.stateDir, e.agent, e.configuration, e.cluster, e.budget, e.rollout, e.keys,
	}
	found := make([][]Finding, len(checks))
	var wg sync.WaitGroup
	for i, check := range checks {
		wg.Go(func() { found[i] = check(ctx) })
	}
	wg.Wait()
	r := Report{Reachable: e.answers(), Findings: []Finding{}}
	for _, f := range found {
		r.Findings = append(r.Findings, f...)
	}
	return r
}

// bounded calls ask and fails after timeout with consul.ErrUnreachable.
func bounded[T any](ctx context.Context, timeout time.Duration, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, &timeoutError{timeout})
	defer cancel()
	return ask(ctx)
}

// timeoutError is the error of a request without an answer.
type timeoutError struct{ timeout time.Duration }

func (s *timeoutError) Error() string { return fmt.Sprintf("no answer within %v", s.timeout) }

func (s *timeoutError) Unwrap() error { return consul.ErrUnreachable }

func one(check string, s Status, detail, remedy string) []Finding {
	return []Finding{{Check: check, Status: s, Detail: detail, Remedy: remedy}}
}

// cluster checks that a cluster with members was created. It has no finding for
// others, nor where this cannot be read: other checks report that.
func (e *examination) cluster(ctx context.Context) []Finding {
	c := fleet.New(e.client, e.Config.Prefix, e.Config.Cluster)
	members, err := bounded(ctx, e.Timeout, c.Uncreated)
	if err != nil || members == 0 {
		return nil
	}
	return one("cluster", Fail, fmt.Sprintf("%s has members (%d), but was never created: stages, runs and rollouts wait", c.Name(), members), fleet.CreationHint(c.Name()))
}

// budget advises one for a cluster of some size that has none. It has no finding where this
// cannot be read: other checks report that.
func (e *examination) budget(ctx context.Context) (all []Finding) {
	c := fleet.New(e.client, e.Config.Prefix, e.Config.Cluster)
	control, err := bounded(ctx, e.Timeout, c.Control)
	if err != nil || control.Budget != nil {
		return nil
	}
	members, err := bounded(ctx, e.Timeout, c.CountMembers)
	if err != nil {
		return nil
	}
	for _, a := range control.Advice(members) {
		all = append(all, Finding{Check: a.Kind, Status: Advise, Detail: a.Text, Remedy: a.Command})
	}
	return all
}

// rollout checks that an orchestrator runs while a rollout needs one. It has no
// finding if no rollout does.
func (e *examination) rollout(ctx context.Context) []Finding {
	const name = "orchestrator"
	rollouts := rollout.New(e.client, e.Config.Prefix, e.Config.Cluster)
	stored, err := bounded(ctx, e.Timeout, rollouts.Load)
	if err == nil && (!stored.Current() || !stored.Document.Paced() || stored.Document.Over()) {
		return nil
	}
	orchestrated := false
	if err == nil {
		orchestrated, err = bounded(ctx, e.Timeout, rollouts.Orchestrated)
	}
	switch {
	case errors.Is(err, consul.ErrDenied), errors.Is(err, consul.ErrUnreachable), errors.Is(err, consul.ErrRateLimited):
		return nil // other checks report it
	case err != nil:
		return one(name, Warn, err.Error(), "")
	case !orchestrated:
		return one(name, Warn, fmt.Sprintf("the rollout of %s is not finished and no orchestrator runs: no host is offered a grant", stored.Document.Version),
			"start an agent with orchestrator { enabled = true }")
	}
	return one(name, OK, "an orchestrator runs the rollout of "+stored.Document.Version, "")
}

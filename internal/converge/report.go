package converge

import (
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
)

// report is what the ledger is to have of this host. What is nil or empty is
// left as it is there.
type report struct {
	Version    string                 `json:"version,omitempty"`
	Config     *cluster.CategoryState `json:"config,omitempty"`
	Validation *cluster.CategoryState `json:"validation,omitempty"`
	// Instead is the one state of config that Config may take the place of; nil:
	// whatever is there. Who brought a version may have told how that went.
	Instead *cluster.CategoryState `json:"instead,omitempty"`
}

// apply is the document that says r.
func (r report) apply(d cluster.Report, now time.Time) cluster.Report {
	if r.Version != "" {
		d = d.At(r.Version, now)
	}
	if r.Config != nil && r.replaces(d.States[cluster.CategoryConfig]) {
		d = d.With(cluster.CategoryConfig, *r.Config, now)
	}
	if r.Validation != nil {
		d = d.With(cluster.CategoryValidation, *r.Validation, now)
	}
	return d
}

// replaces tells whether r.Config may take the place of s.
func (r report) replaces(s cluster.CategoryState) bool {
	return r.Instead == nil || s.State == r.Instead.State && s.Version == r.Instead.Version
}

func same(a, b *cluster.CategoryState) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.State == b.State && a.Version == b.Version && a.Detail == b.Detail && a.LogURL == b.LogURL && a.Suspect == b.Suspect && a.NextTry.Equal(b.NextTry)
}

func (r report) equal(o report) bool {
	return r.Version == o.Version && same(r.Config, o.Config) && same(r.Validation, o.Validation) && same(r.Instead, o.Instead)
}

// setReport makes r what the ledger is to have.
func (c *Converger) setReport(r report) {
	if !r.equal(c.p.Report) {
		c.p.Report, c.unsaved = r, true
	}
}

func (c *Converger) setConfig(s cluster.CategoryState) {
	r := c.p.Report
	r.Config, r.Instead = &s, nil
	c.setReport(r)
}

// handOn gives the report to who writes it to the ledger, also while the disk
// is full: others should know.
func (c *Converger) handOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.report.equal(c.p.Report) {
		c.report = c.p.Report
		c.gen++
		poke(c.tell)
	}
}

// reportAll makes the ledger follow the report until ctx ends: what was not
// written yet when the report changes again is left out.
func (c *Converger) reportAll(ctx context.Context) error {
	for {
		if err := c.reportOne(ctx); err != nil {
			return err
		}
		if err := c.mendUntilTold(ctx); err != nil {
			return err
		}
	}
}

// mendUntilTold returns when the report changes, or with ctx's error. Meanwhile
// it looks seldom whether somebody else wrote keys about this host past its
// document, and has them put right; the document itself stays as it is.
func (c *Converger) mendUntilTold(ctx context.Context) error {
	for {
		due := time.NewTimer(time.Duration(float64(c.timing.mend) * (0.8 + 0.4*c.jitter())))
		select {
		case <-ctx.Done():
			due.Stop()
			return ctx.Err()
		case <-c.tell:
			due.Stop()
			return nil
		case <-due.C:
		}
		c.mu.Lock()
		never := c.report.equal(report{})
		c.mu.Unlock()
		if never {
			continue
		}
		_, err := c.o.Ledger.ChangeReport(ctx, c.o.Node, func(d cluster.Report, _ string) (cluster.Report, error) { return d, nil })
		if err != nil && ctx.Err() == nil {
			c.log.Debug("what others wrote of this host cannot be looked at", "error", err)
		}
	}
}

// reportOne brings the newest report to the ledger. Its error is ctx's.
func (c *Converger) reportOne(ctx context.Context) error {
	for wait := c.timing.trouble; ; wait = min(2*wait, c.timing.maxTrouble/2) {
		c.mu.Lock()
		r, gen := c.report, c.gen
		c.mu.Unlock()
		if r.equal(report{}) {
			c.said(gen, nil)
			return nil
		}
		c.hook("report")
		at := c.now().UTC().Truncate(time.Second)
		_, err := c.o.Ledger.ChangeReport(ctx, c.o.Node, func(d cluster.Report, _ string) (cluster.Report, error) {
			return r.apply(d, at), nil
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.hook("reported")
		c.said(gen, err)
		if err == nil {
			return nil
		}
		if wait == c.timing.trouble {
			c.log.Warn("this host's state cannot be reported; it is tried until it can", "error", err)
		}
		if err := c.restUntilTold(ctx, wait); err != nil {
			return err
		}
	}
}

// reassert has the report written again: the ledger may have lost it.
func (c *Converger) reassert() {
	c.o.Ledger.Forget()
	c.mu.Lock()
	c.gen++
	c.mu.Unlock()
	poke(c.tell)
	c.stir()
}

// retryNow makes another attempt due at once.
func (c *Converger) retryNow() {
	c.input(func(in *inputs) { in.retry = true })
}

// restUntilTold waits, shorter when the report changes.
func (c *Converger) restUntilTold(ctx context.Context, d time.Duration) error {
	short, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-short.Done():
	case <-c.tell:
		_ = concurrency.Sleep(short, min(d, c.timing.trouble)) // Consul may still be away
	}
	return ctx.Err()
}

// said notes that the ledger has a report, or why not.
func (c *Converger) said(gen uint64, err error) {
	c.mu.Lock()
	if err == nil {
		c.in.said, c.in.reportErr = max(c.in.said, gen), ""
	} else {
		c.in.reportErr = err.Error()
	}
	c.mu.Unlock()
	poke(c.saidNews)
	c.stir()
}

// awaitSaid waits until the ledger has the report, for a while: a host that
// cannot reach Consul is not kept from converging by that.
func (c *Converger) awaitSaid(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timing.sayWithin, errors.New("not reported in time"))
	defer cancel()
	for {
		c.mu.Lock()
		done := c.in.said >= c.gen
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-c.saidNews:
		}
	}
}

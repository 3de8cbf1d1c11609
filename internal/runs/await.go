package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
)

// ErrPaused: the cluster is paused, so nothing is worth waiting for.
var ErrPaused = errors.New("the cluster is paused")

// ErrNoMembers: the wait is for no member.
var ErrNoMembers = errors.New("no member matches")

const (
	// gather is for how long changes are gathered at least before the cluster is read. At most half of the time is spent on
	// reads, which take longer with the cluster, but what follows a quiet time does not wait for that.
	gather       = 5 * time.Millisecond
	gatherCredit = 200 * time.Millisecond
	// membersShare is how many times as long as reading a run's members took they are shown
	// as they were, until the run says that it matters.
	membersShare = 20
	// readAgain is the pause after a failed read: what it would have returned may
	// be the last change for a long time.
	readAgain = time.Second
)

// Waiter waits for a cluster.
type Waiter struct {
	Client   *consul.Client
	Cluster  *fleet.Cluster
	Rollouts *rollout.Rollouts
	Filter   *cluster.Filter // which of the members count; nil: all
	Missing  func(string)    // receives what is waited for, when that changes; optional
	Progress func(Detail)    // receives the run of Goal.Run after each read; optional
	Warn     func(string)    // receives what may go wrong with the wait; optional
}

// Await returns when the goal is reached, or when members have failed, with their
// names; it reads the cluster whenever something changed. It returns ErrPaused if
// the cluster is paused, ErrNoRun, ErrNoMembers if no member counts at the first read,
// ctx's error, or a class of package consul if the first read failed, after
// consul.ElectionTime if it is consul.IsTransient; later reads are repeated.
func (w *Waiter) Await(ctx context.Context, g Goal) (Verdict, error) {
	watching, stop := context.WithCancel(ctx)
	changed := concurrency.NewSignal()
	group, watching := errgroup.WithContext(watching)
	group.Go(func() error {
		return watchPaths(watching, w.Client, w.Cluster.Store(), g.paths(), changed.Notify)
	})
	if w.filters() || g.Version != "" { // it may be about health
		group.Go(func() error {
			return consul.Watch(watching, w.Client, consul.Query{}, w.Client.CheckIndexes, func(consul.Update[[]consul.CheckIndex]) { changed.Notify() })
		})
	}
	defer func() { stop(); _ = group.Wait() }() // it returns the watches' end
	seen, first, reported, begin := map[string]bool{}, true, "", time.Now()
	var shown runMembers
	rest := concurrency.Rest{Share: 1, Credit: gatherCredit, Least: gather}
	var by *caller
	end := func() {}
	defer func() { end() }()
	for {
		asked := time.Now()
		var v Verdict
		var members int
		var err error
		if by == nil {
			var c caller
			if c, end, err = w.begin(ctx, g); err == nil {
				by = &c
			}
		}
		if err == nil {
			v, members, err = w.read(ctx, g, *by, seen, &shown)
		}
		ended := time.Now()
		pause := rest.After(ended.Sub(asked), ended)
		if err == nil && first && members == 0 && w.needsMembers(g) {
			err = fmt.Errorf("cluster %q: %w: there is nothing to wait for; 'jorc cluster members' lists them", w.Cluster.Name(), ErrNoMembers)
		}
		electing := first && consul.IsTransient(err) && time.Since(begin) < consul.ElectionTime
		switch {
		case err != nil && (first && !electing || errors.Is(err, ErrPaused) || errors.Is(err, rollout.ErrAside) || errors.Is(err, ErrNoRun) || ctx.Err() != nil):
			return v, err
		case err == nil && (v.Over || len(v.Failed) > 0):
			return v, nil
		case err == nil && v.Missing != reported && w.Missing != nil:
			reported = v.Missing
			w.Missing(reported)
		}
		first = electing
		if err != nil {
			err = concurrency.SleepUnless(ctx, changed.C(), readAgain)
		} else {
			err = changed.Wait(ctx)
		}
		if err == nil {
			err = concurrency.Sleep(ctx, pause)
		}
		if err != nil {
			return v, err
		}
	}
}

// paths are the keys of which a change may bring the goal nearer.
func (g Goal) paths() []string {
	switch {
	case g.Run != "" && g.Except.Job != "":
		return []string{cluster.KeyControl, keyRuns + g.Run + "/", keyWaits}
	case g.Run != "":
		return []string{cluster.KeyControl, keyRuns + g.Run + "/"}
	case g.Members > 0:
		return []string{cluster.KeyControl, "host", cluster.KeyProfile, cluster.KeyLeaders}
	case g.Version != "":
		return []string{cluster.KeyControl, "host", "nodes", cluster.KeyVersion, cluster.KeyVersionState}
	}
	return []string{cluster.KeyControl, "host", "nodes", cluster.KeyVersion, cluster.KeyVersionState, "runs"}
}

// needsMembers reports whether a wait for no member is a mistake.
func (w *Waiter) needsMembers(g Goal) bool { return g.Version != "" || g.Idle && w.filters() }

// filters reports whether only some of the members count.
func (w *Waiter) filters() bool { return w.Filter != nil && w.Filter.String() != "" }

// read judges the cluster as it is now; members is how many of them count.
func (w *Waiter) read(ctx context.Context, g Goal, by caller, seen map[string]bool, shown *runMembers) (v Verdict, members int, err error) {
	l, r := reading{seen: seen}, New(w.Cluster.Store())
	if g.Run != "" {
		if l.run, err = shown.read(ctx, r, g.Run, w.Progress != nil); err != nil {
			return Verdict{}, 0, err
		}
		if w.Progress != nil {
			w.Progress(l.run)
		}
		if v = g.assess(l); v.Over || len(v.Failed) > 0 {
			return v, 0, nil
		}
		control, err := w.Cluster.Control(ctx)
		if err == nil {
			err = paused(control)
		}
		if err == nil && by.node != "" {
			v.Failed, err = w.behindCaller(ctx, r, by, g.Run)
		}
		return v, 0, err
	}
	need := cluster.NeedControl
	if g.Members == 0 {
		need |= cluster.NeedReports
	}
	if g.Idle {
		need |= cluster.NeedVersion
	}
	state, own, err := loadState(ctx, w.Cluster, need, w.Filter)
	if err == nil {
		err = state.Damaged[cluster.KeyControl]
	}
	if err == nil {
		err = paused(state.Control)
	}
	if err != nil {
		return Verdict{}, 0, err
	}
	l.members, l.reports = waitedFor(&state, own, w.Filter), reportsOf(&state)
	if g.Idle {
		l.some = w.filters()
		if l.rollout, err = w.rollout(&state); err != nil {
			return Verdict{}, 0, err
		}
		if l.runs, _, err = r.List(ctx); err != nil {
			return Verdict{}, 0, err
		}
		b, err := w.boundBy(ctx, by, l.runs, true)
		if err != nil {
			return Verdict{}, 0, err
		}
		l.caller, l.own = by, b.leftOut()
		for _, run := range l.runs {
			seen[run.ID] = seen[run.ID] || inProgress(run)
		}
		if assessIdle(l).Over {
			if l.results, err = w.results(ctx, l); err != nil {
				return Verdict{}, 0, err
			}
		}
	}
	v = g.assess(l)
	if g.Version != "" && (!v.Over || len(v.Failed) > 0) {
		return w.arrival(ctx, g.Version, l, v)
	}
	return v, len(l.members), nil
}

// arrival judges those of l's members that are not at version: the ones that take part in
// its rollout. members is how many of l's do. It returns rollout.ErrAside.
func (w *Waiter) arrival(ctx context.Context, version string, l reading, v Verdict) (_ Verdict, members int, err error) {
	state, err := w.Cluster.Load(ctx, cluster.NeedState)
	if errors.Is(err, consul.ErrDenied) { // it is not known who takes part, nor what keeps a member
		return v, len(l.members), nil
	}
	if err != nil {
		return v, 0, err
	}
	stored, err := w.Rollouts.StoredIn(&state, change.Ledger{})
	if err != nil {
		return v, 0, err
	}
	s, err := rollout.StateOf(&state, stored)
	if err != nil {
		return v, 0, err
	}
	counts := make(map[string]bool, len(l.members))
	for i := range l.members {
		counts[l.members[i].Node] = true
	}
	s.Members = slices.DeleteFunc(s.Members, func(m rollout.Member) bool { return !counts[m.Node] })
	a := rollout.ArrivalAt(version, stored, s, time.Now())
	a.Missing = slices.DeleteFunc(a.Missing, func(m rollout.Missing) bool { return m.Version == version })
	if len(a.Missing) == 0 {
		return Verdict{Over: true}, a.Members, nil
	}
	switch _, err := a.Outcome(); {
	case errors.Is(err, rollout.ErrAside):
		return Verdict{}, a.Members, err
	case len(v.Failed) > 0:
		return v, a.Members, nil
	}
	v.Missing = fmt.Sprintf("%d of %d members are not at version %s", len(a.Missing), a.Members, version)
	var kept []string
	for _, m := range a.Missing {
		if m.Lack != rollout.LackPending {
			kept = append(kept, m.Node+": "+m.Reason)
		}
	}
	v.Missing += behind(": ", several(kept))
	return v, a.Members, nil
}

// behindCaller is why a run cannot end before the caller, if it cannot.
func (w *Waiter) behindCaller(ctx context.Context, r *Runs, by caller, run string) ([]Trouble, error) {
	all, _, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	b, err := w.boundBy(ctx, by, all, false)
	if err != nil {
		return nil, err
	}
	if why := b.why(run); why != "" {
		return []Trouble{{Why: why}}, nil
	}
	return nil, nil
}

// runMembers are a run's members as they were read last.
type runMembers struct {
	all []Member
	due time.Time // when they are read again
}

// read reads a run, and its members if they decide whether the wait is over, or are shown and due: each
// of thousands changes several times.
func (m *runMembers) read(ctx context.Context, r *Runs, id string, shows bool) (d Detail, err error) {
	begun := time.Now()
	if !shows || begun.Before(m.due) {
		if d.Run, err = r.Run(ctx, id); err != nil {
			return d, err
		}
		if d.Members = m.all; !d.State.Ended() && d.Counts.Failed == 0 {
			return d, nil
		}
	}
	if d, err = r.progress(ctx, id); err == nil {
		m.all, m.due = d.Members, time.Now().Add(membersShare*time.Since(begun))
	}
	return d, err
}

// paused is ErrPaused while the cluster is paused.
func paused(c cluster.Control) error {
	if c.Paused == nil {
		return nil
	}
	return fmt.Errorf("%w%s; 'jorc cluster resume' ends the pause", ErrPaused, behind(": ", c.Paused.Reason))
}

// rollout returns the rollout; the zero value if it does not exist.
func (w *Waiter) rollout(state *cluster.State) (rollout.Document, error) {
	s, err := w.Rollouts.StoredIn(state, change.Ledger{})
	if err == nil {
		err = s.Damaged
	}
	if errors.Is(err, kv.ErrDamaged) {
		err = fmt.Errorf("cannot read the state of the rollout: %w: 'jorc update trigger VERSION' writes a new one", err)
	}
	if err != nil || s.Document.Version != s.Desired {
		return rollout.Document{}, err
	}
	return s.Document, nil
}

// loadState reads the state of the cluster: the parts that need names, and those
// that filter and the cluster's own filter are about.
func loadState(ctx context.Context, c *fleet.Cluster, need cluster.Need, filter *cluster.Filter) (s cluster.State, own *cluster.Filter, err error) {
	need |= cluster.NeedProfile
	if filter != nil {
		need |= filter.Need()
	}
	for {
		if s, err = c.Load(ctx, need); err == nil {
			err = s.Damaged[cluster.KeyProfile]
		}
		if err != nil {
			return s, nil, err
		}
		if own, err = s.Filter(); err != nil || own.Need()&^need == 0 {
			return s, own, err
		}
		need |= own.Need()
	}
}

// candidates are the members that both filters match; managers are members
// whatever own says. Those whose records cannot be read are left out, as they are
// from runs.
func candidates(s *cluster.State, own, filter *cluster.Filter) []cluster.Member {
	return slices.DeleteFunc(s.Members(filter), func(m cluster.Member) bool {
		return !slices.Contains(m.Roles, cluster.RoleManager) && !own.Match(&m)
	})
}

// waitedFor are the candidates without managers.
func waitedFor(s *cluster.State, own, filter *cluster.Filter) []cluster.Member {
	return slices.DeleteFunc(candidates(s, own, filter), func(m cluster.Member) bool { return slices.Contains(m.Roles, cluster.RoleManager) })
}

// reportsOf are what nodes report; a report that cannot be read counts as none.
func reportsOf(s *cluster.State) map[string]cluster.Report {
	all := make(map[string]cluster.Report, len(s.Hosts))
	for node, h := range s.Hosts {
		if h.Reported {
			all[node] = h.Report
		}
	}
	return all
}

// watchPaths calls wake when something at one of the keys, or below it, may
// have changed. What changed is not sent: with the slash as separator all of a
// directory is one name.
func watchPaths(ctx context.Context, client *consul.Client, store *kv.Store, paths []string, wake func()) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, path := range paths {
		names := func(ctx context.Context, q consul.Query) ([]string, consul.Meta, error) {
			return client.KVKeys(ctx, store.Path(path), "/", q)
		}
		g.Go(func() error {
			return consul.Watch(ctx, client, consul.Query{}, names, func(u consul.Update[[]string]) {
				if u.Err == nil {
					wake()
				}
			})
		})
	}
	return g.Wait()
}

func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// Orchestrated reports whether an orchestrator holds the cluster's lock: without
// one no run starts. It returns what fleet.Orchestrated returns.
func (r *Runs) Orchestrated(ctx context.Context) (bool, error) {
	return fleet.Orchestrated(ctx, r.store)
}

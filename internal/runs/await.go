package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
)

// ErrPaused: the cluster is paused, so nothing is worth waiting for.
var ErrPaused = errors.New("the cluster is paused")

// ErrNobody: nobody is there to be waited for.
var ErrNobody = errors.New("no member matches")

const (
	// gather is for how long changes are gathered before they are looked at.
	gather = 50 * time.Millisecond
	// lookAgain is the pause after a look that failed: what it would have seen
	// may be the last change for a long time.
	lookAgain = time.Second
)

// Waiter waits for a cluster.
type Waiter struct {
	Client   *consul.Client
	Cluster  *cluster.Cluster
	Ledger   *cluster.Cluster
	Rollouts *rollout.Rollouts
	Filter   *cluster.Filter // which of the members count; nil: all
	Missing  func(string)    // told what is waited for, when that changes; optional
}

// Await returns when the goal is reached, or when some have failed, with their
// names; it looks whenever something changed. It returns ErrPaused when the
// cluster is, ErrNoRun, ErrNobody when no member counts at the first look,
// ctx's error, or a class of package consul when the first look failed, for
// consul.ElectionTime when it is consul.IsTransient; later ones are repeated.
func (w *Waiter) Await(ctx context.Context, g Goal) (Verdict, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	bell := make(chan struct{}, 1)
	ring := func() {
		select {
		case bell <- struct{}{}:
		default:
		}
	}
	group, watching := errgroup.WithContext(watching)
	group.Go(func() error { return watchPaths(watching, w.Client, w.Cluster.Store(), g.paths(), ring) })
	if w.filters() { // it may be about health
		group.Go(func() error {
			return consul.Watch(watching, w.Client, consul.Query{}, w.Client.CheckIndexes, func(consul.Update[[]consul.CheckIndex]) { ring() })
		})
	}
	defer func() { stop(); _ = group.Wait() }()
	seen, first, told, begin := map[string]bool{}, true, "", time.Now()
	for {
		v, members, err := w.look(ctx, g, seen)
		if err == nil && first && members == 0 && w.wants(g) {
			err = fmt.Errorf("cluster %q: %w: there is nothing to wait for; 'jorc cluster members' lists them", w.Cluster.Name(), ErrNobody)
		}
		electing := first && consul.IsTransient(err) && time.Since(begin) < consul.ElectionTime
		switch {
		case err != nil && (first && !electing || errors.Is(err, ErrPaused) || errors.Is(err, ErrNoRun) || ctx.Err() != nil):
			return v, err
		case err == nil && (v.Over || len(v.Failed) > 0):
			return v, nil
		case err == nil && v.Missing != told && w.Missing != nil:
			told = v.Missing
			w.Missing(told)
		}
		first = electing
		var again <-chan time.Time
		if err != nil {
			again = time.After(lookAgain)
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-bell:
		case <-again:
		}
		if err := concurrency.Sleep(ctx, gather); err != nil {
			return v, err
		}
	}
}

// paths are the keys of which a change may bring the goal nearer.
func (g Goal) paths() []string {
	switch {
	case g.Run != "":
		return []string{cluster.KeyControl, keyRuns + g.Run + "/spec"}
	case g.Members > 0:
		return []string{cluster.KeyControl, "host", cluster.KeyProfile, cluster.KeyLeaders}
	case g.Version != "":
		return []string{cluster.KeyControl, "host", "nodes"}
	}
	return []string{cluster.KeyControl, "host", "nodes", cluster.KeyRollout, "runs"}
}

// wants tells whether somebody has to match: that none of nobody is at a
// version, or idle, is not what was asked for.
func (w *Waiter) wants(g Goal) bool { return g.Version != "" || g.Idle && w.filters() }

// filters tells whether only some of the members count.
func (w *Waiter) filters() bool { return w.Filter != nil && w.Filter.String() != "" }

// look judges the cluster as it is now; members is how many of them count.
func (w *Waiter) look(ctx context.Context, g Goal, seen map[string]bool) (v Verdict, members int, err error) {
	l, r := look{seen: seen}, New(w.Cluster.Store())
	if g.Run != "" {
		if l.run, err = r.Show(ctx, g.Run); err != nil {
			return Verdict{}, 0, err
		}
		if v := g.judge(l); v.Over || len(v.Failed) > 0 {
			return v, 0, nil
		}
	}
	control, err := w.Cluster.Control(ctx)
	switch {
	case err != nil:
		return Verdict{}, 0, err
	case control.Paused != nil:
		why := ""
		if control.Paused.Reason != "" {
			why = ": " + control.Paused.Reason
		}
		return Verdict{}, 0, fmt.Errorf("%w%s; 'jorc cluster resume' lets it go on", ErrPaused, why)
	case g.Run != "":
		return g.judge(l), 0, nil
	}
	if l.members, err = w.members(ctx); err != nil {
		return Verdict{}, 0, err
	}
	if g.Members == 0 {
		if l.reports, err = w.reports(ctx); err != nil {
			return Verdict{}, 0, err
		}
	}
	if g.Idle {
		l.some = w.filters()
		if l.rollout, err = w.rollout(ctx); err != nil {
			return Verdict{}, 0, err
		}
		if l.runs, _, err = r.List(ctx); err != nil {
			return Verdict{}, 0, err
		}
		l.caller = g.Except
		if l.own, err = w.ownRuns(ctx, l.runs, l.caller); err != nil {
			return Verdict{}, 0, err
		}
		for _, run := range l.runs {
			seen[run.ID] = seen[run.ID] || inProgress(run)
		}
		if judgeIdle(l).Over {
			if l.results, err = w.results(ctx, l); err != nil {
				return Verdict{}, 0, err
			}
		}
	}
	return g.judge(l), len(l.members), nil
}

// rollout reads the rollout; the zero value is none.
func (w *Waiter) rollout(ctx context.Context) (rollout.Document, error) {
	s, err := w.Rollouts.Load(ctx)
	if err == nil {
		err = s.Damaged
	}
	if errors.Is(err, kv.ErrDamaged) {
		err = fmt.Errorf("whether a rollout is under way is not known: %w: 'jorc update trigger VERSION' writes a new one", err)
	}
	if err != nil || s.Document.Version != s.Desired {
		return rollout.Document{}, err
	}
	return s.Document, nil
}

// members are those that count: of the cluster, by its own filter, without
// managers.
func (w *Waiter) members(ctx context.Context) ([]cluster.Member, error) {
	own, err := w.Cluster.Filter(ctx)
	if err != nil && !errors.Is(err, cluster.ErrNoCluster) {
		return nil, err
	}
	all, err := Candidates(ctx, w.Cluster, own, w.Filter)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(m cluster.Member) bool { return slices.Contains(m.Roles, cluster.RoleManager) }), nil
}

// Candidates reads the members that both filters match, nil matches all;
// managers are members whatever own says. Those whose records cannot be read are
// left out, as they are from runs.
func Candidates(ctx context.Context, c *cluster.Cluster, own, filter *cluster.Filter) ([]cluster.Member, error) {
	all, err := c.Members(ctx, cluster.MembersOptions{Filter: filter, Unreadable: ignored})
	if err != nil || own == nil || own.String() == "" {
		return all, err
	}
	mine, err := c.Members(ctx, cluster.MembersOptions{Filter: own, Unreadable: ignored})
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for i := range mine {
		names[mine[i].Node] = true
	}
	return slices.DeleteFunc(all, func(m cluster.Member) bool {
		return !names[m.Node] && !slices.Contains(m.Roles, cluster.RoleManager)
	}), nil
}

func ignored(string, error) {}

// reports are what nodes say of themselves; those that cannot be read count as
// silent.
func (w *Waiter) reports(ctx context.Context) (map[string]cluster.Report, error) {
	leaves, err := w.Ledger.Reports().List(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[string]cluster.Report, len(leaves))
	for node, leaf := range leaves {
		if leaf.Err == nil {
			all[node] = leaf.Value
		}
	}
	return all, nil
}

func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// Orchestrated tells whether an orchestrator holds the cluster's lock: without
// one no run begins. It returns what cluster.Orchestrated returns.
func (r *Runs) Orchestrated(ctx context.Context) (bool, error) {
	return cluster.Orchestrated(ctx, r.store)
}

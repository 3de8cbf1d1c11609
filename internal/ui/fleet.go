package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/budget"
	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/slots"
	"github.com/jorc/jorc/internal/stage"
)

// Fleet is one cluster as one viewer may see it. All viewers of a cluster share what
// was read. It is safe for concurrent use.
type Fleet struct {
	feed   *feed
	sealed bool         // no param is shown
	token  *viewerToken // the viewer's own; nil: the viewer has the server's rights
}

// Name is the name of the cluster.
func (f *Fleet) Name() string { return f.feed.name }

// Snapshot returns the cluster as it is now and as the viewer may see it, without a request
// to Consul but for the rights of the viewer's token. It waits for the first snapshot. It
// returns consul.ErrDenied for a viewer who may see nothing of it, ctx's error, or why none can
// be read.
func (f *Fleet) Snapshot(ctx context.Context) (*Snapshot, error) {
	s, err := f.feed.wait(ctx)
	switch {
	case f.sealed && errors.Is(err, consul.ErrDenied):
		return nil, fmt.Errorf("with the token of the agent that shows the fleet: %w", err)
	case err != nil:
		return nil, err
	}
	return f.shown(ctx, s)
}

// Watch calls handle with the present snapshot and after each change, until ctx ends;
// then it returns ctx's error. It returns consul.ErrDenied once the viewer may no longer see
// the cluster. handle may miss snapshots that follow each other quickly, but never the last
// one, except while Consul does not say what the viewer may see.
func (f *Fleet) Watch(ctx context.Context, handle func(*Snapshot)) error {
	defer f.feed.use()()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	_ = f.feed.latest.Watch(ctx, func(s *Snapshot) {
		switch s, err := f.shown(ctx, s); {
		case err == nil:
			handle(s)
		case errors.Is(err, consul.ErrDenied):
			cancel(err)
		}
	}) // ends with ctx
	return context.Cause(ctx)
}

// shown is a snapshot with the viewer's rights, as of now.
func (f *Fleet) shown(ctx context.Context, s *Snapshot) (*Snapshot, error) {
	if f.token != nil {
		seen, err := f.feed.seenBy(ctx, f.token, s)
		if err != nil {
			return nil, err
		}
		s = seen
	}
	c := *s
	c.Now, c.sealed = time.Now(), f.sealed
	if c.Stale == "" { // Consul would have answered a blocking query
		c.AsOf = c.Now
	}
	return &c, nil
}

// seesTail reports whether the viewer may see what the last task of a run printed on a host.
// One that was printed after the viewer's rights were checked is not shown yet.
func (f *Fleet) seesTail(s *Snapshot, run, node string) bool {
	right := f.feed.cluster.ReadKey(cluster.TailKey(run, node))
	return s.sources == nil || (*s.sources)[right] && (s.hidden == nil || !s.hidden.tails[tail{run, node}])
}

// output is the end of the output of a run on a host, as the viewer may see it.
func (f *Fleet) output(s *Snapshot, d runDetail, run, node string) string {
	if !f.seesTail(s, run, node) {
		return ""
	}
	return d.tails[node]
}

// mostJobs bounds for how many runs, the newest, a host's jobs are looked for.
const mostJobs = 10

// Host returns one host with its jobs. It returns cluster.ErrNoHost or a class of
// package consul.
func (f *Fleet) Host(ctx context.Context, node string) (Host, error) {
	s, err := f.Snapshot(ctx)
	if err != nil {
		return Host{}, err
	}
	h, err := s.Host(node)
	if err != nil {
		return Host{}, err
	}
	for _, r := range s.AllRuns[:min(len(s.AllRuns), mostJobs)] {
		d, err := f.feed.run(ctx, r.ID)
		if err != nil {
			h.Partial = append(h.Partial, err.Error())
			continue
		}
		i := slices.IndexFunc(d.detail.Members, func(m runs.Member) bool { return m.Node == node })
		if i >= 0 {
			h.Jobs = append(h.Jobs, HostJob{Run: r.ID, Workflow: r.Request.Workflow, Created: r.Created, Member: d.detail.Members[i], Output: f.output(s, d, r.ID, node)})
		}
	}
	return h, nil
}

// runDetail reads a run with its members as the viewer may see them. It returns runs.ErrNoRun, consul.ErrDenied or another class of
// package consul.
func (f *Fleet) runDetail(ctx context.Context, s *Snapshot, id string) (d runDetail, err error) {
	if err := s.hidden.refusal("run", id); err != nil {
		return d, err
	}
	if s.sources != nil && !slices.ContainsFunc(s.AllRuns, func(r runs.Run) bool { return r.ID == id }) {
		return d, fmt.Errorf("run %q: %w", id, runs.ErrNoRun) // or it names a host that is hidden
	}
	if d, err = f.feed.run(ctx, id); err == nil && s.hidden != nil {
		d.detail.Members = kept(d.detail.Members, s.hidden.names, nil)
	}
	return d, err
}

// keptEvents bounds how many events a Fleet keeps.
const keptEvents = 2000

// followed are the prefixes of keys beside those of the state. What changed of them
// is read again, and nothing else.
var followed = []string{cluster.PrefixRuns, cluster.PrefixSlots, cluster.PrefixView, prefixOrchestrate, cluster.PrefixHistory, cluster.PrefixStages, cluster.PrefixAudit}

const prefixOrchestrate = "orchestrate/"

// generations number all snapshots of the process.
type generations struct{ last atomic.Uint64 }

// feed keeps the snapshot of one cluster current for all of its viewers.
type feed struct {
	name        string
	prefix      string
	client      *consul.Client
	cluster     *fleet.Cluster
	rollouts    *rollout.Rollouts
	runs        *runs.Runs
	slots       *slots.Slots
	generations *generations
	shared      *concurrency.Latest[*fleet.Watcher] // an orchestrator's
	log         hclog.Logger

	latest concurrency.Latest[*Snapshot]
	failed concurrency.Latest[error] // why there is no snapshot yet

	parts parts // of run's goroutine alone

	mu     sync.Mutex
	users  int
	unused time.Time // since when users is 0

	reading sync.Mutex // held while details are read
	details map[string]runDetail
	audit   auditRead
	profile historyRead

	seeing sync.Mutex // held while it is found out what viewers may see
	made   made
	cutOf  *cluster.State // of cuts
	cuts   map[string]*Snapshot
}

// parts are what a snapshot has beside the state, and when it was read.
type parts struct {
	indexes map[string]uint64
	runs    []runs.Run
	tables  runs.Timetables
	history []rollout.Finished
	slots   slots.Overview
	events  []orchestrator.Event
	seq     uint64
	times   map[string]HostTimes
	ledger  kv.Entry[change.Ledger]
	holder  kv.Holder
	held    bool
	cycles  []orchestrator.Report
	stages  map[string]stageRead // by name
	partial map[string][]string  // by prefix
	denied  []string             // what the token may not read
}

func newParts() parts {
	return parts{indexes: map[string]uint64{}, times: map[string]HostTimes{}, partial: map[string][]string{}}
}

// runDetail is a run as it was when the keys of runs had an index.
type runDetail struct {
	index  uint64
	detail runs.Detail
	tails  map[string]string
}

func newFeed(o FleetOptions, name string, g *generations) *feed {
	c := fleet.New(o.Client, o.Prefix, name)
	shared := o.Watchers[name]
	if shared == nil {
		shared = new(concurrency.Latest[*fleet.Watcher])
	}
	return &feed{
		name: name, prefix: o.Prefix, client: o.Client, cluster: c, rollouts: rollout.New(o.Client, o.Prefix, name), runs: runs.New(c.Store()),
		slots: slots.New(c.Store(), slots.Options{}), generations: g, shared: shared, log: o.Log.With("cluster", name),
		unused: time.Now(), details: map[string]runDetail{},
	}
}

// use counts a user until the returned function is called.
func (f *feed) use() (done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.users--; f.users == 0 {
			f.unused = time.Now()
		}
	}
}

// idleSince is since when the feed has had no user; zero: it has users.
func (f *feed) idleSince() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users > 0 {
		return time.Time{}
	}
	return f.unused
}

// wait returns the present snapshot, or the first one.
func (f *feed) wait(ctx context.Context) (*Snapshot, error) {
	defer f.use()()
	if s, ok := f.latest.Get(); ok {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, firstSnapshot)
	defer cancel()
	ended := make(chan struct{})
	go func() { // a right that is missing does not come by waiting
		defer close(ended)
		if _, err := f.failed.Wait(ctx, func(err error) bool { return errors.Is(err, consul.ErrDenied) }); err == nil {
			cancel()
		}
	}()
	s, err := f.latest.Wait(ctx, func(*Snapshot) bool { return true })
	cancel()
	<-ended
	if err != nil {
		if why, ok := f.failed.Get(); ok {
			return nil, fmt.Errorf("cluster %q cannot be read: %w", f.name, why)
		}
		return nil, fmt.Errorf("cluster %q has not been read yet: %w", f.name, err)
	}
	return s, nil
}

// firstSnapshot bounds how long a viewer waits for the first snapshot: a large cluster
// takes a second or two.
const firstSnapshot = 20 * time.Second

// Pauses of a feed.
const (
	feedRest       = 100 * time.Millisecond // least time between two snapshots
	feedRestShare  = 2                      // of the time that the last one took
	feedFirstRetry = 500 * time.Millisecond
	feedLastRetry  = 10 * time.Second
	lostAfter      = time.Second // how often the client is asked whether Consul answers
)

// Run keeps the snapshot current until ctx ends; then it returns nil.
func (f *feed) Run(ctx context.Context) error {
	return concurrency.Restart(ctx, concurrency.NewBackoff(feedFirstRetry, feedLastRetry), time.Minute, f.follow, func(err error, _ time.Duration) {
		f.log.Debug("the cluster is read again", "error", err)
	})
}

// begin forgets what was read, and finds out which parts the token may not read.
func (f *feed) begin(ctx context.Context) error {
	f.parts = newParts()
	err := f.cluster.MayRead(ctx, followed...)
	if errors.Is(err, consul.ErrDenied) {
		f.parts.denied, err = []string{err.Error()}, nil
	}
	return err
}

// errOtherWatcher: the orchestrator has begun or stopped to share a watcher.
var errOtherWatcher = errors.New("another watcher")

// follow keeps the snapshot current until ctx ends, or Consul's data was restored.
func (f *feed) follow(ctx context.Context) error {
	for {
		if err := f.begin(ctx); err != nil {
			f.failed.Set(err)
			return err
		}
		shared, _ := f.shared.Get()
		if err := f.followWatcher(ctx, shared); !errors.Is(err, errOtherWatcher) {
			return err
		}
	}
}

// followWatcher keeps the snapshot current with the orchestrator's watcher, until it is no
// longer the shared one; nil: with a watcher of its own, until there is a shared one.
func (f *feed) followWatcher(ctx context.Context, shared *fleet.Watcher) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		_, err := f.shared.Wait(ctx, func(w *fleet.Watcher) bool { return w != shared })
		if err == nil {
			err = errOtherWatcher
		}
		return err
	})
	watcher := shared
	if watcher == nil {
		watcher = f.cluster.NewWatcher()
		g.Go(func() error { return watcher.Run(ctx) })
	}
	changes, end := watcher.Follow(followed...)
	defer end()
	changes.Notify() // the first snapshot need not wait for the watcher's queries
	g.Go(func() error {
		tick := time.NewTicker(lostAfter)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
				f.check()
				continue
			case <-changes.C():
			}
			began := time.Now()
			if err := f.refresh(ctx, watcher); err != nil {
				if ctx.Err() == nil {
					f.lost(err)
					changes.Notify() // after a rest it is tried again
				}
				if err := concurrency.Sleep(ctx, feedFirstRetry); err != nil {
					return err
				}
				continue
			}
			if err := concurrency.Sleep(ctx, max(feedRest, feedRestShare*time.Since(began))); err != nil {
				return err
			}
		}
	})
	return g.Wait()
}

// check notices that Consul no longer answers, or does again, from what the client
// knows.
func (f *feed) check() {
	since := f.client.Stats().UnreachableSince
	last, known := f.latest.Get()
	switch {
	case !known:
	case !since.IsZero() && last.Stale == "":
		f.lost(fmt.Errorf("Consul has not answered since %s", since.UTC().Format(time.RFC3339)))
	case since.IsZero() && last.Stale != "":
		next := *last
		next.Stale = ""
		f.publish(&next)
	}
}

// lost publishes that the last snapshot may no longer be true.
func (f *feed) lost(why error) {
	f.failed.Set(why)
	last, known := f.latest.Get()
	if !known || last.Stale != "" {
		return
	}
	next := *last
	next.Stale, next.AsOf = why.Error(), time.Now()
	if since := f.client.Stats().UnreachableSince; !since.IsZero() {
		next.AsOf = since
	}
	f.publish(&next)
}

func (f *feed) publish(s *Snapshot) {
	s.Generation = f.generations.last.Add(1)
	f.latest.Set(s)
}

// refresh reads what changed and publishes the next snapshot.
func (f *feed) refresh(ctx context.Context, w *fleet.Watcher) error {
	state, err := w.Recent(ctx)
	if errors.Is(err, consul.ErrDenied) { // which right is missing
		err = cmp.Or(f.cluster.MayLoad(ctx), err)
	}
	if err != nil {
		return err
	}
	if err := f.readParts(ctx, w, &state); err != nil {
		return err
	}
	stored, err := f.rollouts.StoredIn(&state, f.parts.ledger.Value)
	if err != nil {
		return err
	}
	p := &f.parts
	changes, _ := w.Index(cluster.PrefixAudit)
	s := &Snapshot{
		Cluster: f.name, Now: time.Now(), AsOf: time.Now(), State: &state, derived: newDerived(&state), Rollouts: f.rollouts, Stored: stored, Times: maps.Clone(p.times),
		runsIndex:    p.indexes[cluster.PrefixRuns],
		Orchestrated: p.held, Orchestrator: p.holder, AllRuns: p.runs, Finished: p.history, Groups: p.slots.Groups, MoreGroups: p.slots.MoreText(), Journal: p.events, LastSeq: p.seq, Cycles: p.cycles, stageDocuments: p.stages,
		timetables: p.tables, audited: auditIndexes{p.indexes[cluster.PrefixView], changes},
	}
	s.Partial = slices.Clone(p.denied)
	for _, prefix := range followed {
		s.Partial = append(s.Partial, p.partial[prefix]...)
	}
	if s.Members, err = rollout.StateOf(&state, stored); err != nil {
		var filter *cluster.FilterError
		if !errors.As(err, &filter) {
			s.Partial = append(s.Partial, err.Error())
		}
	}
	if state.Control.Budget != nil {
		s.Members.Places = budget.Count(&state, s.Members, budget.Documents{Stages: p.documents(), Runs: f.runs}, p.holder.Node, s.life, s.Now)
	}
	s.derived.stages = sync.OnceValue(s.stageStates)
	s.problems = len(s.allProblems())
	f.publish(s)
	return nil
}

// life is since when orchestrators have seen a host as it is.
func (s *Snapshot) life(node string) (liveness, health time.Time) {
	t := s.Times[node]
	return t.LifeSince, t.HealthSince
}

// readParts reads the parts whose keys have changed, and the stages that hosts have begun to
// report.
func (f *feed) readParts(ctx context.Context, w *fleet.Watcher, s *cluster.State) error {
	stages := slices.Sorted(maps.Keys(stage.HostsOf(s)))
	if !slices.Equal(stages, slices.Sorted(maps.Keys(f.parts.stages))) {
		delete(f.parts.indexes, cluster.PrefixStages)
	}
	for _, part := range []struct {
		prefix string
		read   func(context.Context) ([]error, error)
	}{
		{cluster.PrefixRuns, f.readRuns},
		{cluster.PrefixSlots, f.readSlots},
		{cluster.PrefixView, f.readEvents},
		{prefixOrchestrate, f.readOrchestrator},
		{cluster.PrefixHistory, f.readHistory},
		{cluster.PrefixStages, func(ctx context.Context) ([]error, error) { return f.readStages(ctx, stages) }},
	} {
		index, known := w.Index(part.prefix)
		if before, read := f.parts.indexes[part.prefix]; read && known && before == index {
			continue
		}
		bad, err := part.read(ctx)
		f.parts.partial[part.prefix] = nil
		switch {
		case errors.Is(err, consul.ErrDenied):
			bad = append(bad, err)
		case err != nil:
			return err
		}
		for _, err := range bad {
			f.parts.partial[part.prefix] = append(f.parts.partial[part.prefix], err.Error())
		}
		if delete(f.parts.indexes, part.prefix); known {
			f.parts.indexes[part.prefix] = index
		}
	}
	return nil
}

func (f *feed) readRuns(ctx context.Context) (bad []error, err error) {
	if f.parts.runs, bad, err = f.runs.List(ctx); err != nil {
		return bad, err
	}
	f.parts.tables, err = f.runs.Timetables(ctx)
	return bad, err
}

func (f *feed) readHistory(ctx context.Context) (bad []error, err error) {
	f.parts.history, bad, err = f.rollouts.History(ctx)
	return bad, err
}

func (f *feed) readSlots(ctx context.Context) ([]error, error) {
	all, err := f.slots.ShowAll(ctx)
	f.parts.slots = all
	if all.Unreadable != nil {
		return []error{all.Unreadable}, err
	}
	return nil, err
}

// readOrchestrator reads who orchestrates, the ledger and the last cycles.
func (f *feed) readOrchestrator(ctx context.Context) (bad []error, err error) {
	store, p := f.cluster.Store(), &f.parts
	p.holder, p.held, err = fleet.Orchestrator(ctx, store)
	if errors.Is(err, kv.ErrNewer) {
		bad, err = append(bad, err), nil
	}
	if err != nil {
		return bad, err
	}
	if p.cycles, err = orchestrator.ReadReports(ctx, store); errors.Is(err, kv.ErrDamaged) || errors.Is(err, kv.ErrNewer) {
		bad, err = append(bad, err), nil
	}
	if err == nil {
		p.ledger, err = change.NewLedgers(store).Get(ctx)
	}
	return bad, err
}

// readEvents reads the events that were journalled since the last time; the first
// time also since when hosts are as they are.
func (f *feed) readEvents(ctx context.Context) (bad []error, err error) {
	store, p := f.cluster.Store(), &f.parts
	events, commit, err := orchestrator.ReadEvents(ctx, store, p.seq, keptEvents)
	if unreadable(err) {
		bad, err = append(bad, err), nil
	}
	if err != nil {
		return bad, err
	}
	gap := len(events) > 0 && events[0].Seq > p.seq+1
	if commit.Seq < p.seq { // the cluster was deleted and begins again
		p.events, p.times, gap = nil, map[string]HostTimes{}, true
		if events, commit, err = orchestrator.ReadEvents(ctx, store, 0, keptEvents); unreadable(err) {
			bad, err = append(bad, err), nil
		}
		if err != nil {
			return bad, err
		}
	}
	if p.seq == 0 || gap {
		saved, err := orchestrator.ReadView(ctx, store)
		if unreadable(err) {
			bad, err = append(bad, err), nil
		}
		if err != nil {
			return bad, err
		}
		for node, n := range saved.View.Nodes {
			p.times[node] = HostTimes{Life: n.Life, LifeSince: n.LifeSince, Health: n.Health, HealthSince: n.HealthSince}
		}
	} else {
		p.observe(events)
	}
	p.events = append(slices.Clip(p.events), events...)
	p.events = p.events[max(0, len(p.events)-keptEvents):]
	p.seq = commit.Seq
	return bad, nil
}

// observe keeps the times of hosts current.
func (p *parts) observe(events []orchestrator.Event) {
	for _, e := range events {
		t := p.times[e.Node]
		switch e.Kind {
		case event.NodeUp, event.NodeDown, event.NodeSuspect, event.NodeGone:
			t.Life, t.LifeSince = cluster.Liveness(e.After), e.Time
		case event.HealthChanged:
			t.Health, t.HealthSince = e.After, e.Time
		case event.MemberLeft:
			delete(p.times, e.Node)
			continue
		default:
			continue
		}
		p.times[e.Node] = t
	}
}

func unreadable(err error) bool { return errors.Is(err, kv.ErrDamaged) || errors.Is(err, kv.ErrNewer) }

// maxDetails bounds how many runs are kept with their members.
const maxDetails = 32

// run returns one run with its members; it is read again only after the keys of runs
// changed.
func (f *feed) run(ctx context.Context, id string) (runDetail, error) {
	f.reading.Lock()
	defer f.reading.Unlock() // viewers that ask for the same wait for one read
	s, _ := f.latest.Get()
	index := uint64(0)
	if s != nil {
		index = s.runsIndex
	}
	if d, ok := f.details[id]; ok && index != 0 && d.index == index {
		return d, nil
	}
	d := runDetail{index: index}
	var err error
	if d.detail, err = f.runs.Show(ctx, id); err != nil {
		return d, err
	}
	if d.tails, err = f.runs.Tails(ctx, id); err != nil {
		return d, err
	}
	if len(f.details) >= maxDetails {
		clear(f.details)
	}
	f.details[id] = d
	return d, nil
}

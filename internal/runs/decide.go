package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
)

// DefaultGrace is how long an agent may be down before what it was to do is
// lost.
const DefaultGrace = 2 * time.Minute

// Observed is what an orchestrator knows of its cluster when it decides.
type Observed struct {
	Node    string        // the orchestrator's own
	State   cluster.State // not older than what Decide wrote last
	Members []cluster.Member
	Now     time.Time
	// Refresh reads the state and the members again. It is called when a run starts: a host may
	// have joined after State was read, and before the run was asked for.
	// nil: Members are newer than any run.
	Refresh func(ctx context.Context) (cluster.State, []cluster.Member, error)
	// Asked: runs whose marks have no higher index were asked for before State was read.
	Asked uint64
	// Gates are the runs that gates of the rollout and of stages wait for. Other runs
	// of gates are cancelled where GatesKnown is set.
	Gates      []string
	GatesKnown bool
	// Quiet, Barred and Left are as in Situation.
	Quiet  time.Time
	Barred func(node string) string
	Left   func(d pace.Demand, taken []string) *pace.Account
	// Commit carries out what Decide writes; nil: as it is.
	Commit Commit
}

// Commit carries out do, with which hosts are offered something or nothing, and records decisions, both or neither. An error
// is a kv.ConflictError when something did not hold; nothing was done then.
type Commit func(ctx context.Context, decisions []event.Decision, offers Offers, do func(*kv.Txn)) error

// Offers is what one transaction offers hosts.
type Offers struct {
	Any       bool     // it offers hosts jobs
	Disturbed []string // the ones that go out of service for that
}

// Decider is the orchestrator's part in runs. It keeps nothing that is not also
// in Consul, except since when agents have been down: another Decider
// counts from zero. It is for one goroutine.
type Decider struct {
	grace time.Duration
	log   hclog.Logger

	down     map[string]time.Time
	out      map[string]time.Time // when members were last seen out of service
	recorded map[string]string    // warnings that were recorded: what → text
	pruned   time.Time
	store    *kv.Store
	cache    map[string]*loaded // runs as they are, read from store
	queues   map[string]said
	commits  Commit
	progress Progress
	denied   []pace.Demand // by the last plan
	// timetables are those of store; nil: they have to be read.
	timetables map[string]kv.Leaf[Timetable]
	schedules  map[string]RuleSchedule // of the rules, by name
	due        time.Time               // see NextDue
	hook       func(step string)       // tests die here
}

// NewDecider returns a Decider; a grace of 0 is the default.
func NewDecider(grace time.Duration, log hclog.Logger) *Decider {
	if grace <= 0 {
		grace = DefaultGrace
	}
	if log == nil {
		log = hclog.NewNullLogger()
	}
	return &Decider{
		grace: grace, log: log, down: map[string]time.Time{}, out: map[string]time.Time{}, recorded: map[string]string{}, cache: map[string]*loaded{}, hook: func(string) {},
	}
}

// Decide decides about the runs of the cluster whose keys are in store, which should be
// that of the orchestrator's lock, and writes what is to happen next: no request
// when no run in progress changed, two for each that did, and one transaction for each
// thirty members or so that have news. It
// writes nothing when nothing changes. Each decision is recorded in the
// transaction that carries it out, and returned; what another write
// overtook is decided again the next time. Errors are those of package kv;
// what was written before stays, and nothing depends on the rest being written
// too.
func (d *Decider) Decide(ctx context.Context, store *kv.Store, o Observed) ([]event.Decision, error) {
	r := New(store)
	if d.store != store { // another lock: another orchestrator may have written in between
		d.store, d.cache, d.queues, d.timetables = store, map[string]*loaded{}, nil, nil
	}
	d.commits, d.denied = o.Commit, nil
	now := o.Now.UTC().Truncate(time.Millisecond)
	d.watchAgents(o, now)
	started, err := d.startDue(ctx, r, o, now)
	if err != nil {
		return started, err
	}
	if o.Refresh != nil && len(started) > 0 {
		if err := d.refresh(ctx, &o, now); err != nil {
			return started, err
		}
	}
	state, err := d.read(ctx, r, o, now)
	if err != nil {
		return started, err
	}
	if o.Refresh != nil && state.begins(o.Asked) {
		if err := d.refresh(ctx, &o, now); err != nil {
			return started, err
		}
	}
	d.applyRules(ctx, r, state, o.State.Profile)
	state.dropGates(o)
	situation := d.situation(o, state, now)
	changes := Plan(situation, state.runs(), state.good)
	d.denied = changes.Denied
	d.wake(changes.Again)
	for _, node := range state.damaged {
		if _, changed := changes.Queues[node]; !changed {
			changes.Queues[node] = state.good[node]
		}
	}
	d.progress = state.progress(situation, changes)
	d.progress.Schedules = slices.SortedFunc(maps.Values(d.schedules), func(a, b RuleSchedule) int { return cmp.Compare(a.Rule, b.Rule) })
	notes, err := d.recordNotes(ctx, state)
	if err != nil {
		return started, err
	}
	decisions, err := d.write(ctx, r, state, changes)
	decisions = slices.Concat(started, notes, decisions)
	if err != nil {
		d.cache = map[string]*loaded{} // it is not known what of it was written
		return decisions, err
	}
	more, err := d.prune(ctx, r, now)
	return append(decisions, more...), err
}

// refresh reads again what o has of the cluster.
func (d *Decider) refresh(ctx context.Context, o *Observed, now time.Time) (err error) {
	if o.State, o.Members, err = o.Refresh(ctx); err == nil {
		d.watchAgents(*o, now)
	}
	return err
}

// Progress are the runs in progress in numbers.
type Progress struct {
	States map[State]int // how many runs are in each state: needs-approval, pending or running
	Jobs   Counts        // of all these runs
	// Blockers is what they wait for.
	Blockers []pace.Blocker
	// Stopped: one of them begins on no further member, as too many failed.
	Stopped bool
	// WaitingSince is since when the run waits that has waited longest: nothing of it
	// runs, and something has yet to begin. Zero: no run waits.
	WaitingSince time.Time
	// Schedules are the rules with a schedule, by name.
	Schedules []RuleSchedule
}

// Denied returns the runs that only the budget kept from beginning on members when Decide
// was called last.
func (d *Decider) Denied() []pace.Demand { return d.denied }

// Progress returns the runs in progress as the last Decide left them.
func (d *Decider) Progress() Progress { return d.progress }

func (st *readState) progress(s Situation, c Changes) Progress {
	p := Progress{States: map[State]int{}}
	for _, id := range st.ids() {
		r := st.run(c, id)
		if r.State.Ended() {
			continue
		}
		p.States[r.State]++
		p.Jobs.merge(r.Counts)
		p.Stopped = p.Stopped || r.Stopped != ""
		p.Blockers = append(p.Blockers, r.blocker(s))
		if r.State == Running && (r.Counts.Running > 0 || r.Counts.Pending == 0) {
			continue
		}
		if since := st.idleSince(id, r); p.WaitingSince.IsZero() || since.Before(p.WaitingSince) {
			p.WaitingSince = since
		}
	}
	return p
}

// blocker is what a run in progress waits for.
func (r *Run) blocker(s Situation) pace.Blocker {
	_, frozen := s.Freezes.At(nil, s.Now)
	switch {
	case r.State == NeedsApproval:
		return pace.BlockedByPromotion
	case r.Stopped != "":
		return pace.BlockedByPause
	case s.Still != "":
		return pace.BlockedByCluster
	case !pace.WindowsOpen(r.Request.Windows, s.Now):
		return pace.BlockedByWindow
	case frozen && r.Request.DuringFreeze == "" && slices.ContainsFunc(s.Members, func(m cluster.Member) bool { return r.disturbs(&m) }):
		return pace.BlockedByFreeze
	}
	return pace.BlockedByHosts
}

// idleSince is when something of a run last began or ended.
func (st *readState) idleSince(id string, r Run) time.Time {
	since := r.Created
	histories := [][]Change{r.History}
	for _, j := range st.loaded[id].active.Jobs {
		histories = append(histories, j.History)
	}
	for _, h := range histories {
		if n := len(h); n > 0 && h[n-1].State != Pending && h[n-1].At.After(since) {
			since = h[n-1].At
		}
	}
	return since
}

// dropGates cancels the runs of gates for which no rollout and no stage waits.
func (st *readState) dropGates(o Observed) {
	for id, l := range st.loaded {
		run := &l.active.Run
		if !o.GatesKnown || !run.Gate || slices.Contains(o.Gates, id) || run.State.Ended() || run.Cancel != "" {
			continue
		}
		if run.Cancel, run.Kill = "orchestrator on "+o.Node, true; run.State != Running {
			run.State, run.Why, run.Ended = Cancelled, "its gate no longer waits for it", st.now
		}
		run.History = noted(run.History, Change{At: st.now, State: run.State, By: run.Cancel, Text: "its gate no longer waits for it"})
		st.changed[id] = true
	}
}

// watchAgents notes since when agents have been down.
func (d *Decider) watchAgents(o Observed, now time.Time) {
	known := map[string]bool{}
	for i := range o.Members {
		m := &o.Members[i]
		known[m.Node] = true
		if _, seen := d.out[m.Node]; !seen || m.Condition.OutOfService(false) != pace.InService {
			d.out[m.Node] = now // what another orchestrator saw is not known
		}
		if m.Agent == cluster.AgentUp || m.Node == o.Node {
			delete(d.down, m.Node)
		} else if _, ok := d.down[m.Node]; !ok {
			d.down[m.Node] = now
		}
	}
	maps.DeleteFunc(d.out, func(node string, _ time.Time) bool { return !known[node] })
	for _, l := range d.cache { // a host that left the cluster counts as down
		for _, node := range l.active.Roster {
			if _, ok := d.down[node]; !ok && !known[node] && node != o.Node {
				d.down[node] = now
			}
		}
	}
}

func (d *Decider) situation(o Observed, st *readState, now time.Time) Situation {
	s := Situation{
		Now: now, Members: o.Members, Holder: o.Node, Down: maps.Clone(d.down), Out: maps.Clone(d.out), Grace: d.grace, Unread: st.unread, Closed: st.closed,
		Barred: o.Barred, Freezes: o.State.Control.Freezes, Left: o.Left, Quiet: o.Quiet,
	}
	text := ""
	if v, ok := o.State.Profile.Params[cluster.ParamFilter]; ok {
		text = v.Raw()
	}
	filter, err := cluster.ParseFilter(text)
	if err != nil {
		st.warn(d, event.RunUnreadable, "filter", "", fmt.Sprintf("param %s: %v: no run begins", cluster.ParamFilter, err))
		s.Still = "the cluster's own filter cannot be read"
	} else {
		d.clear("filter")
	}
	s.Filter = filter
	switch {
	case o.State.Control.Paused != nil:
		s.Still = "the cluster is paused" + behind(": ", o.State.Control.Paused.Reason)
	case o.State.Control.ObserveOnly != nil:
		s.Still = "the cluster is in observe-only mode" + behind(": ", o.State.Control.ObserveOnly.Reason)
	}
	return s
}

// applyRules makes the runs of rules match the profile.
func (d *Decider) applyRules(ctx context.Context, r *Runs, st *readState, p profile.Document) {
	good, bad := ParseRules(p.Params[ParamRules])
	wanted, damaged := map[string]bool{}, map[string]bool{}
	for _, b := range bad {
		damaged[b.Name] = true
		st.warn(d, event.RuleInvalid, "rule "+b.Name, "", b.Err.Error())
	}
	for _, rule := range good {
		d.clear("rule " + rule.Name)
		if rule.Schedule != "" {
			continue // startDue
		}
		id := rule.id()
		wanted[id] = true
		if l := st.loaded[id]; l != nil && l.active.Run.Rule != nil && !l.active.Run.Rule.Gone {
			if q := rule.request(); !l.active.Run.Request.Same(q) { // in what makes no other run of it
				l.active.Run.Request, st.changed[id] = q, true
			}
			continue
		}
		if err := d.addRule(ctx, r, st, rule); err != nil {
			st.warn(d, event.RunUnreadable, "run "+id, id, err.Error())
		}
	}
	for id, l := range st.loaded {
		run := &l.active.Run
		if run.Rule == nil || run.Rule.Gone || wanted[id] || damaged[run.Rule.Name] || len(bad) > 0 && damaged[""] {
			continue // a rule that cannot be read continues unchanged
		}
		gone := *run.Rule
		gone.Gone = true
		run.Rule = &gone
		st.changed[id] = true
		st.decisions = append(st.decisions, decided{Decision: decide(event.RuleGone, id, "", fmt.Sprintf("rule %q no longer exists", gone.Name))})
	}
}

// addRule makes the run of a rule, or takes up one that there was before.
func (d *Decider) addRule(ctx context.Context, r *Runs, st *readState, rule Rule) error {
	id := rule.id()
	l, err := d.load(ctx, r, id, st)
	if errors.Is(err, ErrNoRun) {
		l, err = &loaded{active: Active{Run: Run{ID: id, Request: rule.request(), By: "param " + ParamRules, Created: st.now, State: Pending, History: []Change{}}}}, nil
		l.active.Run.History = noted(nil, Change{At: st.now, State: Pending, By: l.active.Run.By})
	}
	if err != nil {
		return err
	}
	run := &l.active.Run
	if run.State.Ended() {
		run.State, run.Ended = Running, time.Time{}
	}
	run.Request = rule.request()
	run.Rule, run.Why = &Standing{Name: rule.Name, After: rule.After}, ""
	st.loaded[id] = l
	st.changed[id] = true
	st.index[id] = kv.Entry[string]{}
	st.decisions = append(st.decisions, decided{Decision: decide(event.RuleAdded, id, "", fmt.Sprintf("rule %q: workflow %q", rule.Name, rule.Workflow))})
	return nil
}

// What is kept of runs that have ended.
const (
	keepRuns   = 100
	keepFor    = 30 * 24 * time.Hour
	pruneEvery = time.Hour
	pruneMost  = 10 // runs per transaction: the rest can wait
)

// prune forgets runs that ended long ago, looking for them when one has ended
// and every hour.
func (d *Decider) prune(ctx context.Context, r *Runs, now time.Time) ([]event.Decision, error) {
	if due := d.pruned.Add(pruneEvery); now.Before(due) {
		d.wake(due)
		return nil, nil
	}
	ended, err := r.ended.List(ctx)
	if err != nil {
		return nil, err
	}
	all := old(ended, now)
	if len(all) <= pruneMost {
		d.pruned = now
	}
	d.wake(d.pruned.Add(pruneEvery))
	if len(all) == 0 {
		return nil, nil
	}
	all = all[:min(len(all), pruneMost)]
	waits, err := kv.NewTextTree(r.store, keyWaits).Names(ctx)
	if err != nil {
		return nil, d.unpruned(err)
	}
	marks := r.store.Txn()
	for _, id := range all {
		if err := d.forget(ctx, r, id, waits); err != nil {
			return nil, d.unpruned(err)
		}
		marks.Delete(r.ended.At(id).Key())
	}
	decisions := []event.Decision{decide(event.RunPruned, "", "", fmt.Sprintf("%s forgotten: %s", text.Count(len(all), "run that ended long ago is", "runs that ended long ago are"), several(all)))}
	if err := d.commitWith(ctx, marks, decisions, Offers{}); err != nil {
		return nil, d.unpruned(err)
	}
	return decisions, nil
}

// unpruned makes the next cycle look again.
func (d *Decider) unpruned(err error) error {
	d.pruned = time.Time{}
	return err
}

// old are the ended runs that are not to be kept, the oldest first.
func old(ended map[string]kv.Leaf[string], now time.Time) []string {
	type run struct {
		id string
		at time.Time
	}
	all := make([]run, 0, len(ended))
	for id, leaf := range ended {
		at, _ := time.Parse(time.RFC3339, leaf.Value) // the zero time: long ago
		all = append(all, run{id, at})
	}
	slices.SortFunc(all, func(a, b run) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.id, b.id)) })
	var ids []string
	for i, x := range all {
		if i < len(all)-keepRuns || now.Sub(x.at) > keepFor {
			ids = append(ids, x.id)
		}
	}
	return ids
}

// forget deletes all of a run but its mark: what is left goes the next time. waits are the
// names of the keys of all waits.
func (d *Decider) forget(ctx context.Context, r *Runs, id string, waits []string) error {
	tree := kv.NewTextTree(r.store, keyRuns+id+"/")
	names, err := tree.Names(ctx)
	if err != nil {
		return err
	}
	batch := r.store.NonAtomicBatch()
	for _, name := range names {
		batch.Add(r.store.Txn().Delete(tree.At(name).Key()))
	}
	for _, name := range waits {
		if strings.HasSuffix(name, "/"+id) {
			batch.Add(r.store.Txn().Delete(keyWaits + name))
		}
	}
	d.hook("prune")
	return batch.Commit(ctx)
}

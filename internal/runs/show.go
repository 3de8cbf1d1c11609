package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
)

// List reads all runs, the newest first, those whose documents cannot be read
// left out and named in bad: with two requests and one for each 64 of them. It
// returns a class of package consul.
func (r *Runs) List(ctx context.Context) (all []Run, bad []error, err error) {
	ids, err := r.IDs(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	return r.list(ctx, ids)
}

// InProgress is List of the runs in progress alone.
func (r *Runs) InProgress(ctx context.Context) ([]Run, error) {
	ids, err := r.IDs(ctx, true)
	if err != nil {
		return nil, err
	}
	all, _, err := r.list(ctx, ids)
	return all, err
}

func (r *Runs) list(ctx context.Context, ids []string) (all []Run, bad []error, err error) {
	all = []Run{}
	for part := range slices.Chunk(ids, kv.MaxOps) {
		t := r.store.Txn()
		for _, id := range part {
			t.Get(r.spec(id).Key())
		}
		res, err := t.Commit(ctx)
		if err != nil {
			return nil, nil, err
		}
		for _, id := range part {
			e, err := r.spec(id).From(res)
			switch {
			case errors.Is(err, consul.ErrDenied):
				return nil, nil, err
			case err != nil:
				bad = append(bad, fmt.Errorf("run %q: %w", id, err))
			case e.Exists:
				e.Value.ID = id
				all = append(all, e.Value)
			}
		}
	}
	slices.SortFunc(all, func(a, b Run) int {
		if c := b.Created.Compare(a.Created); c != 0 {
			return c
		}
		return strings.Compare(b.ID, a.ID)
	})
	return all, bad, nil
}

// IDs reads the ids of all runs, or of the ones in progress, without their documents:
// with one request, or two for all. It returns a class of package consul.
func (r *Runs) IDs(ctx context.Context, inProgress bool) ([]string, error) {
	active, err := r.active.Names(ctx)
	if err != nil || inProgress {
		return active, err
	}
	ended, err := r.ended.Names(ctx)
	return slices.Compact(slices.Sorted(slices.Values(append(active, ended...)))), err
}

// Member is a run's part on one member. Of one that has nothing to do yet only
// the state is known.
type Member struct {
	Node string `json:"node"`
	Job
	// Waiting is from the creation of the run until the member began its last attempt,
	// Active from then on until that ended, in seconds. Left out: not known, or not over.
	Waiting *int64 `json:"waiting_seconds,omitempty"`
	Active  *int64 `json:"active_seconds,omitempty"`
}

// Exit is the exit code of the task that ended the job, as text; empty if the
// job has not ended, or for a reason other than a task.
func (j Job) Exit() string {
	if j.State == Done || j.State.Ended() && j.Task != "" && j.ExitCode != 0 {
		return strconv.Itoa(j.ExitCode)
	}
	return ""
}

// Progress is how far the member is in a run that was created then, as a host in any change. Its zone is not known here.
func (m Member) Progress(created time.Time) pace.HostProgress {
	h := pace.HostProgress{Node: m.Node, State: m.State.Host(), Since: created, Detail: m.Why}
	switch {
	case m.Task != "" && m.Why != "":
		h.Detail = "task " + m.Task + ": " + m.Why
	case m.State == Pending && m.Why == "":
		h.Detail = "it has not begun"
	}
	if n := len(m.History); n > 0 {
		h.Since = m.History[n-1].At
	}
	return h
}

// timed returns the member with its times in a run that was created then.
func (m Member) timed(created time.Time) Member {
	seconds := func(d time.Duration) *int64 {
		n := int64(max(0, d) / time.Second)
		return &n
	}
	var began time.Time
	for _, c := range m.History {
		switch {
		case c.State == Running:
			began, m.Waiting, m.Active = c.At, seconds(c.At.Sub(created)), nil
		case c.State.Ended() && !began.IsZero():
			m.Active = seconds(c.At.Sub(began))
		}
	}
	return m
}

// Detail is a run with its members.
type Detail struct {
	Run
	Members []Member `json:"members"` // in order of their names
}

// Retry returns q for the members of a run that has ended on which it did not succeed: they
// failed, were lost, or did not start; of a run on a manager, for a manager again. The workflow
// and the params are those of the run unless q has its own: then members run the whole workflow,
// also where the run was interrupted. It returns ErrState for a run in progress, and for one of
// which no member is left; ErrInvalid for what a run on a manager cannot have.
func (d Detail) Retry(q Request) (Request, error) {
	if !d.State.Ended() {
		return q, fmt.Errorf("run %q: %w: it is %s: wait until it has ended, or cancel it", d.ID, ErrState, d.State)
	}
	if len(d.Members) == 0 {
		return q, fmt.Errorf("run %q: %w: it ended before it had members: start it again without --retry-of", d.ID, ErrState)
	}
	if q.OnManager = d.Request.OnManager; !q.OnManager {
		var err error
		if q.Nodes, err = d.left(q.Nodes); err != nil {
			return q, err
		}
	} else if d.State == Done {
		return q, fmt.Errorf("run %q: %w: it succeeded", d.ID, ErrState)
	}
	if q.Workflow == "" || q.Workflow == d.Request.Workflow {
		q.Workflow = d.Request.Workflow
		if len(q.Params) == 0 {
			q.Params = d.Request.Params
		}
	}
	q.RetryOf = d.ID
	q.FromStart = q.FromStart || q.Workflow != d.Request.Workflow || !q.Params.Equal(d.Request.Params)
	if last := d.last(); q.OnManager && !q.FromStart && last.Once != "" {
		q.Done = last.Done
	}
	return q, q.Check()
}

// left are the members on which the run did not succeed, of nodes if there are any.
func (d Detail) left(nodes []string) ([]string, error) {
	var left []string
	for _, m := range d.Members {
		if m.State != Done {
			left = append(left, m.Node)
		}
	}
	if len(left) == 0 {
		return nil, fmt.Errorf("run %q: %w: it succeeded on every member", d.ID, ErrState)
	}
	for _, node := range nodes {
		if !slices.Contains(left, node) {
			return nil, fmt.Errorf("run %q: %w: %s is none of the members on which it did not succeed: %s", d.ID, ErrState, node, several(left))
		}
	}
	if len(nodes) > 0 {
		return nodes, nil
	}
	return left, nil
}

// last is the member with the last attempt of a run on a manager.
func (d Detail) last() (last Member) {
	for _, m := range d.Members {
		if m.Attempt > last.Attempt {
			last = m
		}
	}
	return last
}

// Run reads one run, without its members, with one request. It returns ErrNoRun,
// ErrInvalid, kv.ErrDamaged, kv.ErrNewer or a class of package consul.
func (r *Runs) Run(ctx context.Context, id string) (Run, error) {
	if err := CheckID(id); err != nil {
		return Run{}, err
	}
	e, err := r.spec(id).Get(ctx)
	if err == nil && !e.Exists {
		err = r.unknown(ctx, id)
	}
	e.Value.ID = id
	return e.Value, err
}

// Show reads one run with its members, with two requests, or three while members
// are in progress. It returns ErrNoRun, ErrInvalid, kv.ErrDamaged, kv.ErrNewer or a
// class of package consul.
func (r *Runs) Show(ctx context.Context, id string) (Detail, error) {
	d, err := r.detail(ctx, id)
	if err != nil {
		return d, err
	}
	nodes := inSilence(d.Members)
	if len(nodes) <= fewMembers {
		return d, r.explain(ctx, d.Members, nodes)
	}
	results, err := r.results.List(ctx)
	if errors.Is(err, consul.ErrDenied) {
		return d, nil
	}
	for i, m := range d.Members {
		d.Members[i].explained(results[m.Node].Err)
	}
	return d, err
}

// progress is Show for a reader that reads again and again: why members do not continue is
// read only when few are in progress.
func (r *Runs) progress(ctx context.Context, id string) (Detail, error) {
	d, err := r.detail(ctx, id)
	if nodes := inSilence(d.Members); err == nil && len(nodes) <= fewMembers {
		err = r.explain(ctx, d.Members, nodes)
	}
	return d, err
}

// detail is Show without the reasons why members do not continue.
func (r *Runs) detail(ctx context.Context, id string) (Detail, error) {
	if err := CheckID(id); err != nil {
		return Detail{}, err
	}
	spec, roster := r.spec(id), r.members(id)
	res, err := r.store.Txn().Get(spec.Key()).Get(roster.Key()).Commit(ctx)
	if err != nil {
		return Detail{}, err
	}
	s, err := spec.From(res)
	if err != nil {
		return Detail{}, err
	}
	if !s.Exists {
		return Detail{}, r.unknown(ctx, id)
	}
	m, err := roster.From(res)
	if err != nil {
		return Detail{}, err
	}
	jobs, err := r.jobs(id).List(ctx)
	if err != nil {
		return Detail{}, err
	}
	d := Detail{Run: s.Value, Members: []Member{}}
	for _, node := range slices.Sorted(slices.Values(m.Value.Nodes)) {
		one := Member{Node: node, Job: Job{State: Pending}}
		leaf, scheduled := jobs[node]
		switch {
		case leaf.Err != nil:
			one.Why = leaf.Err.Error()
		case scheduled:
			one.Job = leaf.Value
		case s.Value.State == Cancelled:
			one.State = Cancelled
		}
		if one.History == nil {
			one.History = []Change{}
		}
		d.Members = append(d.Members, one.timed(s.Value.Created))
	}
	return d, nil
}

// fewMembers is of how many members the results are read one by one, in a transaction.
const fewMembers = kv.MaxOps / 2

// silent reports whether a member is in progress and does not say why that takes long.
func (m *Member) silent() bool { return m.Why == "" && (m.State == Pending || m.State == Running) }

// explained adds to a silent member that what it says of its jobs cannot be read.
func (m *Member) explained(err error) {
	if err != nil && m.silent() {
		m.Why = "what it says of its job cannot be read: " + err.Error()
	}
}

// inSilence are the silent members.
func inSilence(members []Member) (nodes []string) {
	for _, m := range members {
		if m.silent() {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

// explain adds that what nodes, at most fewMembers, say cannot be read. It returns a class of package consul.
func (r *Runs) explain(ctx context.Context, members []Member, nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	t := r.store.Txn()
	for _, node := range nodes {
		t.Get(r.results.At(node).Key())
	}
	res, err := t.Commit(ctx)
	if errors.Is(err, consul.ErrDenied) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range members {
		if m := &members[i]; m.silent() {
			_, err := r.results.At(m.Node).From(res)
			m.explained(err)
		}
	}
	return nil
}

// Tail reads the end of what the last task of a run printed on a node; empty
// when nothing was. It returns what kv.Doc.Get does.
func (r *Runs) Tail(ctx context.Context, id, node string) (string, error) {
	e, err := r.tail(id, node).Get(ctx)
	return e.Value, err
}

// Tails is Tail for all members that printed something, by node, with one
// request. It returns a class of package consul.
func (r *Runs) Tails(ctx context.Context, id string) (map[string]string, error) {
	leaves, err := kv.NewTextTree(r.store, cluster.TailKey(id, "")).List(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(leaves))
	for node, leaf := range leaves {
		all[node] = leaf.Value
	}
	return all, nil
}

// Waits is why a run that has not ended is not further; empty: it is at work.
func (r Run) Waits() string {
	switch {
	case r.Why != "":
		return r.Why
	case r.State == NeedsApproval:
		return fmt.Sprintf("'jorc cluster approve %s' lets it begin", r.ID)
	case r.State == Pending:
		return "its members are chosen when it begins"
	}
	return ""
}

// Explain adds why a run does not continue to one of which the orchestrator cannot
// write it: in observe-only mode it writes nothing.
func (r *Run) Explain(c cluster.Control) {
	if c.ObserveOnly != nil && (r.State == Pending || r.State == Running && r.Counts.Running == 0) {
		r.Why = "the cluster is in observe-only mode" + behind(": ", c.ObserveOnly.Reason)
	}
}

// loaded is a run as it was read, with what its writes compare with.
type loaded struct {
	active Active
	mark   uint64 // index of the run's mark among the active ones, when it was read
	spec   kv.Entry[Run]
	roster kv.Entry[Roster]
	jobs   map[string]kv.Entry[Job]
}

// readState is everything that one decision is made of.
type readState struct {
	now       time.Time
	index     map[string]kv.Entry[string] // active runs
	hosts     map[string]*cluster.Host
	good      map[string]Queue   // queues that can be read
	said      map[string]said    // what they are made of
	loaded    map[string]*loaded // runs, by id
	unread    map[string]bool
	damaged   []string        // nodes whose queues are rebuilt
	closed    map[string]bool // nodes whose results are of a newer jorc
	changed   map[string]bool // runs that differ from what was read before there is a plan
	decisions []decided       // about runs that differ so
	notes     []note
}

func (st *readState) ids() []string { return slices.Sorted(maps.Keys(st.loaded)) }

func (st *readState) runs() []Active {
	all := make([]Active, 0, len(st.loaded))
	for _, id := range st.ids() {
		all = append(all, st.loaded[id].active)
	}
	return all
}

// begins reports whether the members of a run are to be decided that was asked for after asked.
func (st *readState) begins(asked uint64) bool {
	for id, l := range st.loaded {
		if l.active.Run.State == Pending && st.index[id].Index > asked {
			return true
		}
	}
	return false
}

// said is what of one node's queue is granted, and what the node says of it.
type said struct {
	granted kv.Entry[change.Grants]
	damaged bool // the grants cannot be read
	results kv.Leaf[Results]
	queue   Queue // of both
}

// queuesOf returns the queues in a state, by node. What was not written since is not
// decoded again.
func (d *Decider) queuesOf(r *Runs, s *cluster.State) map[string]said {
	all := make(map[string]said, len(d.queues))
	for node, h := range s.Hosts {
		if !h.Grants.Exists && !h.Results.Exists {
			continue
		}
		q, known := d.queues[node]
		news := !known
		if q.granted.Index != h.Grants.Index {
			var ok bool
			q.granted, ok = change.ReadGrants(h)
			q.damaged, news = !ok, true
		}
		if q.results.Index != h.Results.Index {
			q.results.Entry, q.results.Err = r.results.At(node).Parse(h.Results)
			news = true
		}
		if news {
			q.queue = queueOf(q.granted.Value, q.results.Value)
		}
		all[node] = q
	}
	d.queues = all
	return all
}

// read reads the active runs that the state has. Documents of runs are written by the holder of the
// orchestrator's lock, and by others only together with the run's mark: as
// long as that is as it was, they are as this Decider left them.
func (d *Decider) read(ctx context.Context, r *Runs, o Observed, now time.Time) (*readState, error) {
	st := &readState{now: now, hosts: o.State.Hosts, good: map[string]Queue{}, loaded: map[string]*loaded{}, unread: map[string]bool{}, changed: map[string]bool{}, closed: map[string]bool{}}
	if st.index = maps.Clone(o.State.ActiveRuns); len(st.index) == 0 {
		st.index = map[string]kv.Entry[string]{}
		d.cache = map[string]*loaded{}
		return st, nil
	}
	st.said = d.queuesOf(r, &o.State)
	for node, q := range st.said {
		switch err := q.results.Err; {
		case q.damaged: // rebuilt, once the runs are read
			st.warn(d, event.RunUnreadable, "queue "+node, "", fmt.Sprintf("the grants of node %s cannot be read: its jobs are granted again, as its runs say", node))
			st.damaged = append(st.damaged, node)
			continue
		case err != nil && !errors.Is(err, kv.ErrDamaged):
			st.warn(d, event.RunUnreadable, "queue "+node, "", fmt.Sprintf("node %s gets nothing to run: %v", node, err))
			st.closed[node] = true
			continue
		case err != nil: // the node replaces them when it has news
			st.warn(d, event.RunUnreadable, "queue "+node, "", fmt.Sprintf("what node %s says of its jobs counts as nothing: %v", node, err))
		default:
			d.clear("queue " + node)
		}
		st.good[node] = q.queue
	}
	late := d.stillAway(st, o)
	for id, mark := range st.index {
		if l := d.cache[id]; l != nil && l.mark == mark.Index {
			st.loaded[id] = l.clone()
			continue
		}
		if mark.Value == awaitsLate && late[id] {
			st.unread[id] = true
			continue
		}
		l, err := d.load(ctx, r, id, st)
		switch {
		case err == nil:
			l.mark = mark.Index
			st.loaded[id] = l
			d.clear("run " + id)
		case errors.Is(err, ErrNoRun), errors.Is(err, kv.ErrDamaged), errors.Is(err, kv.ErrNewer):
			st.unread[id] = true
			st.warn(d, event.RunUnreadable, "run "+id, id, err.Error())
		default:
			return nil, err
		}
	}
	st.carryOn()
	for _, node := range st.damaged {
		st.good[node] = st.rebuilt(node, o.Members)
	}
	return st, nil
}

// carryOn completes queues by what a job of which its node has said nothing begins with.
func (st *readState) carryOn() {
	for node, q := range st.good {
		for i, e := range q.Jobs {
			l := st.loaded[e.Run]
			if l == nil || st.said[node].results.Value.has(e.Job) || len(l.active.Jobs[node].Done) == 0 {
				continue
			}
			q = q.clone()
			q.Jobs[i].Done = l.active.Jobs[node].Done
			st.good[node] = q
		}
	}
}

// rebuilt is the queue of a node as it follows from what is known of the runs:
// the node reports again what it has reported since, because its own files have
// what it has done.
func (st *readState) rebuilt(node string, members []cluster.Member) Queue {
	var member *cluster.Member
	if i := slices.IndexFunc(members, func(m cluster.Member) bool { return m.Node == node }); i >= 0 {
		member = &members[i]
	}
	q := Queue{Jobs: []Queued{}}
	for _, id := range st.ids() {
		run := &st.loaded[id].active.Run
		j, scheduled := st.loaded[id].active.Jobs[node]
		i := slices.IndexFunc(j.History, func(c Change) bool { return c.State == Running })
		late := j.State == Lost && i >= 0 && !run.Request.OnManager
		if !scheduled || j.State.Ended() && !late {
			continue
		}
		e := Queued{
			Run: id, JobGrant: run.jobGrant(member),
			Result: Result{Job: jobID(id, j.Attempt), Done: j.Done, Once: j.Once, State: Pending},
		}
		if i >= 0 {
			e.State, e.Started = Running, j.History[i].At
		}
		q.Jobs = append(q.Jobs, e)
	}
	return q
}

// stillAway are the runs whose jobs in queues are all of members that are still
// away and have reported nothing, for not too long.
func (d *Decider) stillAway(st *readState, o Observed) map[string]bool {
	away, here := map[string]bool{}, map[string]bool{}
	for node, q := range st.good {
		_, down := d.down[node]
		for _, e := range q.Jobs {
			away[e.Run] = true
			if !down && node != o.Node || e.State.Ended() || o.Now.Sub(e.Started) > keepFor {
				here[e.Run] = true
			}
		}
	}
	maps.DeleteFunc(away, func(id string, _ bool) bool { return here[id] })
	return away
}

// load reads one run. It returns ErrNoRun if it does not exist.
func (d *Decider) load(ctx context.Context, r *Runs, id string, st *readState) (*loaded, error) {
	if err := CheckID(id); err != nil {
		return nil, errors.Join(err, ErrNoRun)
	}
	spec, roster := r.spec(id), r.members(id)
	res, err := r.store.Txn().Get(spec.Key()).Get(roster.Key()).Commit(ctx)
	if err != nil {
		return nil, err
	}
	l := &loaded{jobs: map[string]kv.Entry[Job]{}}
	if l.spec, err = spec.From(res); err != nil {
		return nil, err
	}
	if l.roster, err = roster.From(res); err != nil {
		return nil, err
	}
	if !l.spec.Exists {
		return nil, noRun(id)
	}
	l.active = Active{Run: l.spec.Value, Roster: l.roster.Value.Nodes, Jobs: map[string]Job{}, Back: map[string]Job{}}
	l.active.Run.ID = id // whatever the document says
	jobs, err := r.jobs(id).List(ctx)
	if err != nil {
		return nil, err
	}
	for node, leaf := range jobs {
		if leaf.Err != nil {
			// Nothing of it is believed, and nothing is done again because of it.
			st.warn(d, event.RunUnreadable, "job "+id+" "+node, id, fmt.Sprintf("run %s: what %s did cannot be read: %v", id, node, leaf.Err))
			l.active.Jobs[node] = Job{State: Failed, Why: "its document cannot be read", Attempt: 1}
			continue
		}
		l.jobs[node] = leaf.Entry
		if leaf.Value.Back {
			l.active.Back[node] = leaf.Value
			continue
		}
		l.active.Jobs[node] = leaf.Value
	}
	return l, nil
}

func (l *loaded) clone() *loaded {
	c := *l
	c.active.Jobs = maps.Clone(l.active.Jobs)
	c.jobs = maps.Clone(l.jobs)
	return &c
}

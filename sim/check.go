package sim

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/stage"
)

const (
	root    = "jorc/default/"
	sickFor = 3 * time.Minute // what was seen of a host's health may be that old
	// late is for how long a host may be offered something although it is held: no transaction depends on that,
	// so what was seen may be as old as the request, the answer and the transaction are late.
	late = sickFor
)

// checker compares each change of the KV with the invariants of docs/ARCHITECTURE.md. Its methods are called with
// the network's mutex held.
type checker struct {
	w *world

	control  cluster.Control
	spec     rollout.Spec
	grants   map[string]change.Grants
	reports  map[string]cluster.Report
	free     map[string]bool // "host grant": offered while the host was out already
	accepted map[string]bool // "host grant": the host said so once
	ended    map[string]bool // "host change grant": the host said that it is over; a restored ledger counts the same IDs again
	ledger   change.Ledger
	restored time.Time
	knew     map[string]bool    // processes that could notice the restore: they had an index from before
	told     map[string]bool    // hosts that have reported since the restore
	desired  int                // how often the desired version changed
	arrived  map[string]arrival // by host
	most     int                // hosts out of service for grants at the same time
	offers   int
}

// arrival is the version that a host brought last.
type arrival struct {
	version  string
	desired  int  // as it was then
	reported bool // so the host's disk has it
}

func newChecker(w *world) *checker {
	return &checker{w: w, grants: map[string]change.Grants{}, reports: map[string]cluster.Report{}, free: map[string]bool{}, accepted: map[string]bool{}, ended: map[string]bool{}, told: map[string]bool{}, arrived: map[string]arrival{}}
}

// read decodes a document; one that is absent or damaged is the zero value.
func read[T any](c *checker, key string) (v T) {
	text, _ := c.w.net.model.Value(root + key)
	if json.Unmarshal(text, &v) != nil {
		var none T
		return none
	}
	return v
}

// changed reads what a request changed, and checks it.
func (c *checker) changed(keys []string) {
	if c.w.o.Trace != nil {
		for _, key := range keys {
			if name, ours := strings.CutPrefix(key, root); ours && (strings.HasPrefix(name, "host/") || strings.HasPrefix(name, "nodes/") || strings.HasPrefix(name, "current") || name == cluster.KeyGrantLedger) {
				text, index := c.w.net.model.Value(key)
				c.w.traceLocked("  %s %s at %d = %s", c.w.net.from, name, index, text)
			}
		}
	}
	for _, key := range keys {
		key, ours := strings.CutPrefix(key, root)
		if !ours {
			continue
		}
		switch key {
		case cluster.KeyControl:
			c.control = read[cluster.Control](c, key)
		case cluster.KeyVersion:
			c.spec = read[rollout.Spec](c, key)
		case cluster.KeyDesired:
			c.desired++
		case cluster.KeyGrantLedger:
			c.counted()
		}
	}
	for _, key := range keys {
		key, _ := strings.CutPrefix(key, root)
		if node, ok := strings.CutPrefix(key, cluster.PrefixReports); ok {
			c.reported(node)
		}
	}
	var offered, taking []string
	for _, key := range keys {
		key, _ := strings.CutPrefix(key, root)
		if rest, ok := strings.CutPrefix(key, cluster.PrefixHosts); ok && strings.HasSuffix(rest, cluster.EndGrants) {
			node := strings.TrimSuffix(rest, cluster.EndGrants)
			isNew, takes := c.offered(node)
			if isNew {
				offered = append(offered, node)
			}
			if takes {
				taking = append(taking, node)
			}
		}
	}
	if len(offered) > 0 {
		c.checkOffers(offered, taking)
	}
	c.checkWriter(keys)
}

// rebuild reads everything again, after a restore.
func (c *checker) rebuild(now time.Time) {
	c.restored, c.knew = now, maps.Clone(c.w.net.heard)
	clear(c.told)
	c.desired++
	c.control, c.spec = read[cluster.Control](c, cluster.KeyControl), read[rollout.Spec](c, cluster.KeyVersion)
	c.ledger = read[change.Ledger](c, cluster.KeyGrantLedger)
	clear(c.ended)
	for _, h := range c.w.hosts {
		c.grants[h.name] = read[change.Grants](c, cluster.GrantsKey(h.name))
		c.reports[h.name] = read[cluster.Report](c, cluster.ReportKey(h.name))
	}
}

// counted: the ledger never goes back (invariant 17).
func (c *checker) counted() {
	next := read[change.Ledger](c, cluster.KeyGrantLedger)
	if next.Term < c.ledger.Term || next.Term == c.ledger.Term && next.Seq <= c.ledger.Seq {
		c.w.failLocked("17: the ledger went from %+v to %+v", c.ledger, next)
	}
	c.ledger = next
}

// offered notes what a host is granted, and reports whether an offer is new, and whether it takes out a host that was
// in service.
func (c *checker) offered(node string) (isNew, takes bool) {
	old, next := c.grants[node], read[change.Grants](c, cluster.GrantsKey(node))
	c.grants[node] = next
	for _, g := range next.All {
		was := old.Of(g.Change)
		if g.State != pace.Offered || was.State == pace.Offered && was.ID == g.ID || g.Job != nil && !g.Job.Disturbs {
			continue
		}
		isNew = true
		c.offers++
		switch g.Change {
		case cluster.VersionChange:
			c.checkSpec(node, g)
		case filesChange:
			c.checkContent(node, g)
		}
		before := change.Grants{All: slices.DeleteFunc(slices.Clone(next.All), func(o change.Grant) bool { return o.Change == g.Change })}
		if h := c.w.host(node); h != nil && (c.open(node, before) || c.outByItself(h)) {
			c.free[node+" "+g.ID] = true
		} else {
			takes = true
		}
	}
	return isNew, takes
}

// checkSpec: what is offered is what is asked for now, and not paused (invariants 6 and 17).
func (c *checker) checkSpec(node string, g change.Grant) {
	spec := c.index(cluster.KeyVersion)
	switch {
	case g.Spec != spec:
		c.w.failLocked("17: %s is offered %s of spec %d, which is at %d now", node, g.ID, g.Spec, spec)
	case c.spec.Stopped != nil && c.spec.Finished.IsZero():
		c.w.failLocked("6: %s is offered %s while the rollout is paused", node, g.ID)
	}
}

// checkContent: content that failed on a host is offered to none before an operator has resumed the stage, and what is offered
// follows from the present stops (invariants 6 and 17).
func (c *checker) checkContent(node string, g change.Grant) {
	key := cluster.StageStopsKey(stageName)
	if spec := c.index(key); g.Spec != spec {
		c.w.failLocked("17: %s is offered %s of stops %d, which are at %d now", node, g.ID, g.Spec, spec)
	}
	i := slices.IndexFunc(contents, func(content string) bool { return c.w.host(node).file.digestOf(content) == g.Tag })
	if i < 0 {
		c.w.failLocked("17: %s is offered %s of a content that no operator asked for", node, g.ID)
		return
	}
	for _, stop := range read[stage.Stops](c, key).Stops {
		if stop.Resumed == nil && stop.Inputs.Has(inputOf(contents[i])) {
			c.w.failLocked("6: %s is offered %s although %s failed on %s", node, g.ID, contents[i], stop.Node)
		}
	}
}

// filed: a host replaces its file by what it has a grant for, and brings back what it had before (invariant 17). After a restore
// Consul may not know the grant, until the host has told it again.
func (c *checker) filed(h *host, content string, restored bool) {
	a, f := c.reports[h.name].Answered(filesChange), h.file
	switch recent := !c.restored.IsZero() && time.Since(c.restored) < late; {
	case restored && content != f.before:
		c.w.failLocked("17: %s brings %q back, and had %q before %q", h.name, content, f.before, f.content)
	case !restored && !recent && !(a.Open() && a.Tag == f.digestOf(content)):
		c.w.failLocked("17: %s replaces its file by %q, and has the grant %+v", h.name, content, a)
	}
}

// index is that of a key.
func (c *checker) index(key string) uint64 {
	_, index := c.w.net.model.Value(root + key)
	return index
}

// outByItself reports whether a host is out of service, or was a moment ago, without a grant of the new offer. It also is
// where its report says that it converges, or that new content stays although checks fail with it.
func (c *checker) outByItself(h *host) bool {
	r := c.reports[h.name]
	converges, failed := r.States[cluster.CategoryConfig].State == cluster.StateRunning, r.Stages[stageName].State == cluster.StageFailed
	return converges || failed || h.unhealthy() || h.maintenance || time.Since(h.sick) < sickFor && !h.sick.IsZero()
}

// open reports whether a host has an open grant among g.
func (c *checker) open(node string, g change.Grants) bool {
	r := c.reports[node]
	for _, one := range g.All {
		a := r.Answered(one.Change)
		switch {
		case one.State == pace.GivenUp && one.ID == a.ID:
		case a.Open():
			return true
		case c.valid(node, one):
			return true
		}
	}
	return slices.ContainsFunc(r.Grants, func(a cluster.Answer) bool {
		given := g.Of(a.Change)
		return a.Open() && !(given.State == pace.GivenUp && given.ID == a.ID)
	})
}

// valid reports whether a grant is an offer that the host can still accept, as far as the grant itself says, or a job for which
// it is out of service.
func (c *checker) valid(node string, g change.Grant) bool {
	if g.Job != nil { // until it is taken out
		return g.Job.Disturbs
	}
	r := c.reports[node]
	if g.State != pace.Offered || g.Answered(r.Answered(g.Change)) || g.Session != c.w.net.model.Session(root+cluster.OrchestratorLock) {
		return false
	}
	switch g.Change {
	case cluster.VersionChange:
		return g.Spec == c.index(cluster.KeyVersion)
	case filesChange:
		return g.Spec == c.index(cluster.StageStopsKey(stageName)) && g.Tag == r.Stages[stageName].Wants
	}
	return r.Lease != nil && r.Lease.ID == g.Tag
}

// counts reports whether a host counts as out of service for a grant, which it was not already when that was offered.
func (c *checker) counts(node string) bool {
	g, r := c.grants[node], c.reports[node]
	givenUp := c.givenUp(node) // what began until then counts for nothing
	for _, one := range g.All {
		a := r.Answered(one.Change)
		id := one.ID
		if a.Open() {
			id = a.ID
		}
		if c.free[node+" "+id] || one.Job != nil && !one.Since.After(givenUp) {
			continue
		}
		if a.Open() && a.Since.After(givenUp) || c.valid(node, one) {
			return true
		}
	}
	return false
}

// checkOffers: no more hosts are granted than the budget and the policy allow, and nothing while the cluster is held
// (invariant 6).
func (c *checker) checkOffers(offered, taking []string) {
	now := time.Now()
	out := []string{}
	for _, h := range c.w.hosts {
		if c.counts(h.name) || h.maintenance && c.givenUp(h.name).IsZero() && !c.anyFree(h.name) && !c.unknowable(h.name) {
			out = append(out, h.name)
		}
	}
	c.most = max(c.most, len(out))
	if b := c.control.Budget; b != nil && b.MaxOut.N > 0 && len(out) > b.MaxOut.N && len(taking) > 0 {
		c.w.failLocked("6: %s offered, so %d are out for grants: %v, and the budget is %d", offered, len(out), out, b.MaxOut.N)
	}
	c.checkParallel(cluster.VersionChange, offered, taking, c.spec.Policy.MaxParallel)
	if most, err := pace.ParseAmount(stageOf(c.w.o.Seed).MaxParallel); err == nil {
		c.checkParallel(filesChange, offered, taking, most)
	}
	held := c.control.At(now)
	switch {
	case held.Paused != nil:
		c.w.failLocked("6: %s offered while the cluster is paused", offered)
	case held.ObserveOnly != nil:
		c.w.failLocked("6: %s offered while the cluster is only observed", offered)
	case now.Before(c.ledger.Quiet):
		c.w.failLocked("6: %s offered although Consul's KV was restored, and nothing is to be granted until %v", offered, c.ledger.Quiet)
	}
	for _, node := range offered {
		if hold := read[cluster.Hold](c, cluster.HoldKey(node)); !hold.Since.IsZero() && now.Sub(hold.Since) > late {
			c.w.failLocked("6: %s offered while it is held: %v", node, hold)
		}
	}
}

// checkParallel: no more hosts have a grant of a change than it allows (invariant 6).
func (c *checker) checkParallel(change string, offered, taking []string, most pace.Amount) {
	isNew := slices.ContainsFunc(taking, func(node string) bool {
		g := c.grants[node].Of(change)
		return g.State == pace.Offered && !c.free[node+" "+g.ID] && g.ID == newest(c.grants[node])
	})
	if !isNew || most.N == 0 || most.Percent {
		return
	}
	n := 0
	for _, h := range c.w.hosts {
		g, a := c.grants[h.name].Of(change), c.reports[h.name].Answered(change)
		givenUp := g.State == pace.GivenUp && g.ID == a.ID
		if c.valid(h.name, g) && !c.free[h.name+" "+g.ID] || a.Open() && !c.free[h.name+" "+a.ID] && !givenUp {
			n++
		}
	}
	if n > most.N {
		c.w.failLocked("6: %s offered, so %d have a grant of %s, and max_parallel is %d", offered, n, change, most.N)
	}
}

// newest is the id of the grant that was offered last.
func newest(g change.Grants) (id string) {
	if len(g.All) > 0 {
		id = g.All[len(g.All)-1].ID
	}
	return id
}

// unknowable reports whether the sender of the present request cannot know that a host is out: it began after a restore, and the
// host has not said so since.
func (c *checker) unknowable(node string) bool {
	return !c.restored.IsZero() && time.Since(c.restored) < time.Minute && !c.knew[c.w.net.from] && !c.told[node]
}

// givenUp is when an operator gave up on a grant that the host still has; zero: none did.
func (c *checker) givenUp(node string) (at time.Time) {
	for _, g := range c.grants[node].All {
		if a := c.reports[node].Answered(g.Change); g.State == pace.GivenUp && g.ID == a.ID && a.Open() && g.Since.After(at) {
			at = g.Since
		}
	}
	return at
}

func (c *checker) anyFree(node string) bool {
	return slices.ContainsFunc(c.grants[node].All, func(g change.Grant) bool { return c.free[node+" "+g.ID] })
}

// reported: a host accepts only what is offered, by the holder of the lock, for what is asked for now, and not
// while the cluster is held (invariants 2, 6, 17).
func (c *checker) reported(node string) {
	old, next := c.reports[node], read[cluster.Report](c, cluster.ReportKey(node))
	c.reports[node] = next
	c.told[node] = true
	if a, is := c.arrived[node]; is && a.version == next.Version {
		a.reported = true
		c.arrived[node] = a
	}
	for _, a := range old.Grants {
		if a.Open() && !(next.Answered(a.Change).ID == a.ID && next.Answered(a.Change).Open()) {
			c.ended[node+" "+a.Change+" "+a.ID] = true
		}
	}
	for _, a := range next.Grants {
		if a.Open() && c.ended[node+" "+a.Change+" "+a.ID] {
			c.w.failLocked("6: %s has %s of %s, and said before that it is over", node, a.ID, a.Change)
		}
		if !a.Open() || a.ID == "" || old.Answered(a.Change).ID == a.ID || c.accepted[node+" "+a.ID] {
			continue
		}
		c.accepted[node+" "+a.ID] = true
		g := c.grants[node].Of(a.Change)
		lock := c.w.net.model.Session(root + cluster.OrchestratorLock)
		held := c.control.At(time.Now())
		switch {
		case g.ID != a.ID || g.State != pace.Offered:
			c.w.failLocked("6: %s accepts %s of %s, but has %+v", node, a.ID, a.Change, g)
		case g.Session == "" || g.Session != lock:
			c.w.failLocked("2: %s accepts %s of session %s, and the lock is of %q", node, a.ID, g.Session, lock)
		case a.Change == cluster.VersionChange && g.Spec != c.index(cluster.KeyVersion):
			c.w.failLocked("17: %s accepts %s of spec %d, which is at %d now", node, a.ID, g.Spec, c.index(cluster.KeyVersion))
		case a.Change == filesChange && g.Spec != c.index(cluster.StageStopsKey(stageName)):
			c.w.failLocked("17: %s accepts %s of stops %d, which are at %d now", node, a.ID, g.Spec, c.index(cluster.StageStopsKey(stageName)))
		case held.Paused != nil || held.ObserveOnly != nil:
			c.w.failLocked("6: %s accepts %s while the cluster is paused", node, a.ID)
		case time.Since(g.Since) > 5*pace.AnswerWithin: // an acceptance may arrive late
			c.w.failLocked("6: %s accepts %s, which was offered %v ago", node, a.ID, time.Since(g.Since))
		}
	}
}

// operation is what the checker reads of an operation in a transaction.
type operation struct {
	KV struct{ Verb, Key, Session string }
}

// checkWriter: what an orchestrator writes is fenced by its lock, and a host writes its own keys only (invariants 2
// and 12).
func (c *checker) checkWriter(keys []string) {
	from, _, _ := strings.Cut(c.w.net.from, "#")
	switch {
	case from == "":
	case from[0] == 'h':
		for _, key := range keys {
			for _, other := range c.w.hosts {
				if other.name != from && slices.Contains(strings.Split(key, "/"), other.name) {
					c.w.failLocked("12: %s writes %s", from, key)
				}
			}
		}
	}
}

// sent checks a transaction before it is carried out.
func (c *checker) sent(from, method, path string, body []byte) {
	if method == "GET" || from == "" || from[0] == 'p' {
		return
	}
	if strings.HasPrefix(path, "/v1/kv/") {
		c.w.failLocked("2: %s writes %s without a transaction", from, path)
		return
	}
	if path != "/v1/txn" || from[0] != 'o' {
		return
	}
	var ops []operation
	if err := json.Unmarshal(body, &ops); err != nil {
		c.w.failLocked("%s sends %s: %v", from, body, err)
		return
	}
	fenced := false
	for _, op := range ops {
		switch op.KV.Verb {
		case "check-session":
			fenced = fenced || op.KV.Key == root+cluster.OrchestratorLock
		case "set", "cas", "delete", "delete-cas", "delete-tree":
			if !fenced {
				c.w.failLocked("2: %s writes %s without a check of its lock", from, op.KV.Key)
			}
		}
	}
}

// began: a task that must not be repeated begins once for each job (invariant 7: what was done is not done again).
func (c *checker) began(h *host, workflow, job string) {
	if workflow == "patch" && h.began[workflow+" "+job] > 1 {
		c.w.failLocked("6: %s begins task %s of job %s again", h.name, workflow, job)
	}
}

// brought: a version that arrived is not applied again, unless something else was asked for in between (invariant 3).
func (c *checker) brought(h *host, version string) {
	if a := c.arrived[h.name]; a.version == version && a.desired == c.desired {
		c.w.failLocked("3: %s applied %s again although nothing was asked for", h.name, version)
	}
	delete(c.arrived, h.name)
}

// validated notes the result of a validation. A version with which checks fail has not arrived, or with which they failed as far
// as the host knows: it is applied again.
func (c *checker) validated(h *host, version string, passed bool) {
	delete(c.arrived, h.name)
	if passed && !h.unhealthy() && !h.stale && (h.sick.IsZero() || time.Since(h.sick) > sickFor) {
		c.arrived[h.name] = arrival{version: version, desired: c.desired}
	}
}

// killed notes that a host was killed: it may apply again what it had not written down.
func (c *checker) killed(h *host, wiped bool) {
	if wiped || !c.arrived[h.name].reported {
		delete(c.arrived, h.name)
	}
}

// sickened: a host whose checks fail after it arrived applies the version again by itself.
func (c *checker) sickened(h *host) { delete(c.arrived, h.name) }

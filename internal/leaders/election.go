package leaders

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// ElectionOptions are what an Election needs.
type ElectionOptions struct {
	Node   string // on which it runs; shown to others
	Timing cluster.Timing
	Lock   kv.LeaseOptions
	// Spread is the time over which the waiting electors try to take the lock after
	// its holder is gone, so that few of a large cluster try. Default 2 s.
	Spread time.Duration
	Log    hclog.Logger
}

// Election keeps a cluster's leaders decided. Any number of members may run
// one: the holder of a lock decides, and the lock fences what it writes.
type Election struct {
	cluster *fleet.Cluster
	o       ElectionOptions
	denied  bool              // for Run alone
	good    *cluster.Leaders  // as last read; for decide alone
	wrong   string            // last warning about the grace period; for decide alone
	warned  map[string]string // members whose records cannot be read, and why; for decide alone
	readAll time.Time         // when all members are read at the latest; for decide alone
}

// NewElection returns an election of c's leaders. It does no I/O.
func NewElection(c *fleet.Cluster, o ElectionOptions) *Election {
	if o.Spread <= 0 {
		o.Spread = 2 * time.Second
	}
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	o.Timing = o.Timing.WithDefaults()
	o.Lock.Holder.Node = o.Node
	return &Election{cluster: c, o: o}
}

// Run decides whenever it holds the lock, until ctx ends; then it returns nil.
func (e *Election) Run(ctx context.Context) error {
	for waited := false; ctx.Err() == nil; waited = true {
		if !e.mayElect(ctx) {
			_ = concurrency.Sleep(ctx, askAgain)
			continue
		}
		e.await(ctx, waited)
		held, err := e.cluster.Store().TryLock(ctx, cluster.KeyElection, e.o.Lock)
		switch {
		case errors.Is(err, kv.ErrLocked): // by another, or for the delay after its holder is gone
			continue
		case err != nil:
			if ctx.Err() == nil {
				e.o.Log.Warn("cannot take part in the election of leaders", "error", err)
			}
			_ = concurrency.Sleep(ctx, e.o.Spread/2+rand.N(e.o.Spread))
			continue
		}
		e.preside(held)
		if err := held.Release(ctx); err != nil && ctx.Err() == nil {
			e.o.Log.Debug("cannot release the lock of the election", "error", err)
		}
	}
	return nil
}

// askAgain is the pause between two questions of an agent that may not elect:
// rights change when people give them.
const askAgain = 5 * time.Minute

// mayElect reports whether the token has the rights of an elector; it counts as
// having them while Consul does not answer.
func (e *Election) mayElect(ctx context.Context) bool {
	var rights []consul.Right
	for _, key := range cluster.WritableKeys(cluster.KindElector, "") {
		rights = append(rights, consul.Right{Resource: "key", Access: "write", Segment: e.cluster.Store().Path(key)})
	}
	allowed, err := e.cluster.Client().Authorize(ctx, rights...)
	may := err != nil || !slices.Contains(allowed, false)
	if !may && !e.denied {
		e.o.Log.Info("this agent takes no part in the election of leaders: its token has no rights of an elector")
	}
	e.denied = !may
	return may
}

// await returns when this elector may try to take the lock, or ctx has ended. The first one of
// a new cluster, whose lock was never taken, may do so immediately.
func (e *Election) await(ctx context.Context, waited bool) {
	// So many times as long as Consul takes for an answer, the turns are spread over: the
	// first electors have the lock before the others try. A busy Consul gets time.
	const answers, most = 20, time.Minute
	for next := e.o.Spread; ; waited = true {
		spread := e.turn(ctx, waited, next)
		if spread == 0 || ctx.Err() != nil {
			return
		}
		asked := time.Now()
		p, _, err := e.cluster.Client().KVGet(ctx, e.cluster.Store().Path(cluster.KeyElection), consul.Query{Consistent: true})
		needed := min(answers*time.Since(asked), most)
		if err == nil && (p == nil || p.Session == "") && needed <= spread {
			return
		}
		next = max(e.o.Spread, needed)
	}
}

// afterOutage is over how many times as long the turns are spread after an outage: Consul has to
// answer all agents then.
const afterOutage = 4

// turn returns when the lock is free and it is this elector's turn, or ctx has ended. It returns
// over what time the turns were spread; 0: there are no others.
func (e *Election) turn(ctx context.Context, waited bool, spread time.Duration) time.Duration {
	watch, stop := context.WithCancel(ctx)
	defer stop()
	var timer *time.Timer // runs while the lock is free
	came := false         // this elector's turn came before the lock was read
	turn := func() time.Duration {
		came, spread = true, max(spread, afterOutage*e.o.Spread)
		return backoffOfMany(spread, rand.Float64())
	}
	source := func(ctx context.Context, q consul.Query) (*consul.KVPair, consul.Meta, error) {
		return e.cluster.Client().KVGet(ctx, e.cluster.Store().Path(cluster.KeyElection), q)
	}
	// After an outage the lock is probably free, as its holder could not renew it. The electors ask in turn: the first
	// take the lock, and all others ask once.
	_ = consul.WatchInTurn(watch, e.cluster.Client(), consul.Query{}, turn, source, func(u consul.Update[*consul.KVPair]) {
		waited = waited || u.Err != nil || u.Value != nil
		switch {
		case u.Err != nil:
		case u.Value != nil && u.Value.Session != "":
			came = false
			if timer != nil {
				timer.Stop()
				timer = nil
			}
		case !waited || came:
			stop()
		case timer == nil:
			timer = time.AfterFunc(backoffOfMany(spread, rand.Float64()), stop)
		}
	}) // ends with watch
	if timer != nil {
		timer.Stop()
	}
	if !waited {
		return 0
	}
	return spread
}

// crowd is for how many electors the turns are spread well. With fewer of them the first
// turn comes later, with more of them more electors try at once.
const crowd = 10_000

// backoffOfMany returns how long one of an unknown number of waiting electors waits; u is
// random, from 0 to 1. Late turns are likelier than early ones, exponentially: however
// many electors wait, only a few have their turn shortly after the first (RFC 5401,
// RandomBackoff: timer-based suppression of feedback).
func backoffOfMany(most time.Duration, u float64) time.Duration {
	rate := math.Log(crowd) + 1
	return time.Duration(float64(most) / rate * math.Log1p(u*math.Expm1(rate)))
}

// preside decides again and again while the lock is held.
func (e *Election) preside(held *kv.Lease) {
	g, ctx := errgroup.WithContext(held.Context())
	news := concurrency.NewSignal()
	c := e.cluster.In(held.Store())
	var r relevantChecks
	g.Go(func() error { return watchHosts(ctx, c, news) })
	g.Go(func() error {
		return c.WatchLeaders(ctx, func(u kv.Update[cluster.Leaders]) {
			if u.Err == nil {
				r.setLeaders(u.Entry.Value)
			}
			news.Notify()
		})
	})
	g.Go(func() error { // who is eligible
		return c.WatchProfile(ctx, func(kv.Update[profile.Document]) { news.Notify() })
	})
	g.Go(func() error {
		// The answer itself is small; its index moves with every check.
		source := func(ctx context.Context, q consul.Query) (consul.HealthChecks, consul.Meta, error) {
			return c.Client().HealthState(ctx, consul.HealthCritical, q)
		}
		var pending atomic.Bool
		later := time.AfterFunc(recheckAfter, func() { pending.Store(false); news.Notify() })
		defer later.Stop()
		return consul.Watch(ctx, c.Client(), consul.Query{}, source, func(u consul.Update[consul.HealthChecks]) {
			switch {
			case u.Err != nil: // there will be an answer
			case r.setFailing(u.Value):
				news.Notify()
			case !pending.Swap(true): // checks that are gone are not among the failing ones
				later.Reset(recheckAfter)
			}
			_ = concurrency.Sleep(ctx, gatherNews) // ends with ctx
		})
	})
	g.Go(func() error { return e.decide(ctx, c, news) })
	_ = g.Wait() // ends with the lock
}

// watchHosts sets news when a document of a host changed, its grant included. The
// answer is one name, however many hosts exist.
func watchHosts(ctx context.Context, c *fleet.Cluster, news concurrency.Signal) error {
	names := func(ctx context.Context, q consul.Query) ([]string, consul.Meta, error) {
		return c.Client().KVKeys(ctx, c.Store().Path(strings.TrimSuffix(cluster.PrefixHosts, "/")), "/", q)
	}
	return consul.Watch(ctx, c.Client(), consul.Query{}, names, func(consul.Update[[]string]) {
		news.Notify()
		_ = concurrency.Sleep(ctx, gatherNews) // ends with ctx
	})
}

// Bounds of how often members are read again: after relevant changes, and after
// others. While news is gathered Consul is not asked for more: during a rollout
// documents and checks change all the time, and leaders are replaced after seconds.
const (
	pauseBetween = 250 * time.Millisecond
	recheckAfter = 5 * time.Second
	gatherNews   = time.Second
)

func (e *Election) decide(ctx context.Context, c *fleet.Cluster, news concurrency.Signal) error {
	m := cluster.NewElectorMemory(e.o.Timing)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news.C():
		case <-timer.C:
		}
		again := e.once(ctx, c, m)
		if err := concurrency.Sleep(ctx, pauseBetween); err != nil {
			return err
		}
		timer.Reset(again)
	}
}

// once decides, and returns after what time to do so again without news.
func (e *Election) once(ctx context.Context, c *fleet.Cluster, m *cluster.ElectorMemory) time.Duration {
	const retry, longest = 5 * time.Second, 10 * time.Minute
	before, err := c.Leaders(ctx)
	if errors.Is(err, kv.ErrDamaged) {
		before, err = e.repair(ctx, c, err)
	}
	var candidates []cluster.Candidate
	var f *cluster.Filter
	if err == nil {
		e.good = &before
		f, err = e.prepare(ctx, c, m)
	}
	if err == nil && time.Now().Before(e.readAll) && settled(ctx, c, before, f, m) {
		return time.Until(e.readAll)
	}
	if err == nil {
		candidates, err = c.Candidates(ctx, f)
	}
	if err == nil {
		e.readAll = time.Now().Add(longest)
		e.reportTrouble(candidates)
		if before.Count > 0 {
			var after cluster.Leaders
			if after, err = c.DecideLeaders(ctx, candidates, m, time.Now()); err == nil && !after.Equal(before) {
				e.o.Log.Info("leaders were decided", "leaders", after.Leader, "before", before.Leader, "vacancies", after.Count-len(after.Leader))
			}
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			e.o.Log.Warn("leaders cannot be decided", "error", err)
		}
		return retry
	}
	if d, ok := m.Next(time.Now()); ok {
		return max(d, time.Millisecond)
	}
	return longest
}

// repair replaces a damaged document by the leaders that were read last; without
// them by none, once former leaders must have noticed that they no longer lead.
func (e *Election) repair(ctx context.Context, c *fleet.Cluster, damage error) (cluster.Leaders, error) {
	next := cluster.Leaders{Count: 1}
	if e.good != nil {
		next = *e.good
	} else if err := concurrency.Sleep(ctx, e.o.Timing.StepDown); err != nil {
		return cluster.Leaders{}, err
	}
	repaired, err := c.RepairLeaders(ctx, next)
	if err != nil {
		return cluster.Leaders{}, err
	}
	if repaired {
		e.o.Log.Warn("who leads could not be read, and was written again", "error", damage, "leaders", next.Leader, "count", next.Count)
	}
	return c.Leaders(ctx)
}

// fewLeaders is for how many leaders four small requests each cost less than all
// members in large ones.
const fewLeaders = 4

// settled reports whether all places are taken by members that may lead and do not
// fail: no decision would change that, whatever became of other members. It reads
// the leaders alone. It returns false also when they cannot be read.
func settled(ctx context.Context, c *fleet.Cluster, l cluster.Leaders, f *cluster.Filter, m *cluster.ElectorMemory) bool {
	if len(l.Leader) != l.Count || len(l.Retired) > 0 || l.Count > fewLeaders {
		return false
	}
	all := make([]cluster.Candidate, 0, l.Count)
	for _, node := range l.Leader {
		one, err := c.CandidateOf(ctx, node, f)
		if err != nil {
			return false
		}
		all = append(all, one...)
	}
	if len(all) != l.Count || slices.ContainsFunc(all, func(c cluster.Candidate) bool { return !c.Electable() || c.Failing }) {
		return false
	}
	m.Observe(l, all, time.Now())
	return true
}

// prepare reads what the profile says of elections: the grace period and the
// cluster's own filter.
func (e *Election) prepare(ctx context.Context, c *fleet.Cluster, m *cluster.ElectorMemory) (*cluster.Filter, error) {
	f, grace, wrong, err := c.ElectionRules(ctx, e.o.Timing)
	if err != nil {
		return nil, err
	}
	if wrong != nil && e.wrong != wrong.Error() {
		e.o.Log.Warn("the grace for failing leaders is the default", "error", wrong)
	}
	m.Timing.Replace, e.wrong = grace, ""
	if wrong != nil {
		e.wrong = wrong.Error()
	}
	return f, nil
}

// reportTrouble names the members whose records cannot be read, once each.
func (e *Election) reportTrouble(all []cluster.Candidate) {
	warned := map[string]string{}
	for _, m := range all {
		if m.Unreadable == nil {
			continue
		}
		warned[m.Node] = m.Unreadable.Error()
		if e.warned[m.Node] != warned[m.Node] {
			e.o.Log.Warn("a member cannot be chosen to lead: its record cannot be read", "node", m.Node, "error", m.Unreadable)
		}
	}
	e.warned = warned
}

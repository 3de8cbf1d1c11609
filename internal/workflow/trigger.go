package workflow

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/schedule"
)

// TriggerSource calls observe with the current items and after each change until ctx
// ends. It does not report read errors: the last observation stays valid. observe
// takes ownership of its argument, and must not be called concurrently.
type TriggerSource interface {
	Watch(ctx context.Context, observe func(Observation)) error
}

// Observation holds all current items, or new events.
type Observation struct {
	Items map[string]Item
	// Happened: Items are events, named by their sequence numbers, that followed
	// earlier observations.
	Happened bool
	// UpTo, of events: events up to this number were observed, or happened before
	// the trigger existed.
	UpTo uint64
	// Restarted, of events: their numbers started again, so that the number of the last
	// handled event is void. UpTo is the number at that time.
	Restarted bool
}

// TriggerOptions configure RunTriggers.
type TriggerOptions struct {
	StateDir string // the triggers' states are in its directory "triggers"
	Triggers []config.Trigger
	// Source returns the source of t. after is the last handled event; known is
	// false if the trigger has handled none: then only new events count.
	Source func(t config.Trigger, after uint64, known bool) TriggerSource
	Clock  schedule.Clock // of schedules; nil: the host's
	Log    hclog.Logger
}

// RunTriggers runs workflows when something in Consul changes, once per change, and
// at set times, once per due time, also across restarts, until ctx ends; then it
// returns nil.
func (r *Runner) RunTriggers(ctx context.Context, o TriggerOptions) error {
	if o.Clock == nil {
		o.Clock = schedule.SystemClock{}
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, t := range o.Triggers {
		w := &triggerWatcher{r: r, conf: t, o: o, log: o.Log.With("trigger", t.Name), doc: triggerDoc(o.StateDir, t.Name), wake: concurrency.NewSignal()}
		g.Go(func() error { return w.run(ctx) })
	}
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// run runs one trigger until ctx ends. If the state cannot be read or written,
// the trigger runs nothing and tries again later.
func (w *triggerWatcher) run(ctx context.Context) error {
	const first, most = 5 * time.Second, time.Minute
	return concurrency.Restart(ctx, concurrency.NewBackoff(first, most), most, w.once, func(err error, pause time.Duration) {
		w.log.Error("trigger failed, will retry", "error", err, "again_in", pause)
	})
}

// once reads the state, finishes a job that a restart interrupted, and follows
// the source. It returns the error that ended it.
func (w *triggerWatcher) once(ctx context.Context) error {
	var err error
	if w.seen, err = w.loadTriggerState(triggerKind(w.conf) + " " + triggerSubject(w.conf)); err != nil {
		return err
	}
	if err := w.finish(ctx); err != nil {
		return err
	}
	if w.conf.Schedule != "" {
		return w.followSchedule(ctx)
	}
	w.mu.Lock()
	w.latest = nil // the source observes again what the last attempt did not handle
	w.mu.Unlock()
	source := w.o.Source(w.conf, w.seen.Event, w.seen.Known)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return source.Watch(ctx, w.observe) })
	g.Go(func() error { return w.follow(ctx) })
	return g.Wait()
}

// finish runs the pending job to its end, and removes it from the state.
func (w *triggerWatcher) finish(ctx context.Context) error {
	p := w.seen.Pending
	if p == nil {
		return nil
	}
	job := Job{ID: p.Job, Workflow: w.conf.Workflow, Origin: "trigger " + w.conf.Name, Change: p.Change}
	_, err := w.r.Drive(ctx, job, Hooks{Stop: w.ended})
	return err
}

// ended is the end of the pending job. A job that can never run is skipped.
func (w *triggerWatcher) ended(_ context.Context, res Result, err error) error {
	log := w.log.With("workflow", w.conf.Workflow, "job", w.seen.Pending.Job)
	switch {
	case err != nil:
		log.Error("cannot run the workflow; the change is skipped", "error", err)
	case res.State == Success:
		log.Info("the workflow ran")
	default:
		log.Error("the workflow did not succeed", "state", res.State, "why", res.Why)
	}
	next := w.seen
	next.Last = &LastJob{Job: next.Pending.Job, State: res.State, Why: jobReason(res), At: time.Now().UTC()}
	if err != nil {
		next.Last.State, next.Last.Why = Failed, err.Error()
	}
	next.Pending = nil
	return w.save(next)
}

// jobReason is why a job ended as it did, with the task that it is about.
func jobReason(res Result) string {
	if res.Task == "" {
		return res.Why
	}
	return fmt.Sprintf("task %q: %s", res.Task, res.Why)
}

// TriggerStatus is the state of a trigger, as the agent of the node saved it.
type TriggerStatus struct {
	Trigger  string   `json:"trigger"`
	Kind     string   `json:"kind"` // service, key, prefix, event or schedule
	Workflow string   `json:"workflow"`
	Running  string   `json:"running"` // the job that has not ended
	Last     *LastJob `json:"last"`    // nil: none has ended
	Error    string   `json:"error"`   // why the state is not known
}

// Triggers returns the state of the triggers.
func Triggers(stateDir string, triggers []config.Trigger) []TriggerStatus {
	all := make([]TriggerStatus, 0, len(triggers))
	for _, t := range triggers {
		status := TriggerStatus{Trigger: t.Name, Kind: triggerKind(t), Workflow: t.Workflow}
		seen, err := savedTrigger(stateDir, t)
		if status.Last = seen.Last; err != nil {
			status.Error = err.Error()
		}
		if seen.Pending != nil {
			status.Running = seen.Pending.Job
		}
		all = append(all, status)
	}
	return all
}

// savedTrigger reads the state of a trigger.
func savedTrigger(stateDir string, t config.Trigger) (triggerState, error) {
	s, _, err := triggerDoc(stateDir, t.Name).Read()
	return s.about(triggerKind(t) + " " + triggerSubject(t)), err
}

// ConsulSource returns the source of a trigger on a service, a key or a prefix. The
// items of a service are its functional instances, which have no critical check.
// It logs a warning if the token may not read all items.
func ConsulSource(client *consul.Client, t config.Trigger, log hclog.Logger) TriggerSource {
	log = log.With("trigger", t.Name)
	switch triggerKind(t) {
	case "service":
		return watchOf[[]*consul.ServiceEntry]{log, client, func(ctx context.Context, q consul.Query) ([]*consul.ServiceEntry, consul.Meta, error) {
			return client.HealthService(ctx, t.Service, "", false, q)
		}, instances}
	case "key":
		return watchOf[*consul.KVPair]{log, client, func(ctx context.Context, q consul.Query) (*consul.KVPair, consul.Meta, error) {
			return client.KVGet(ctx, t.Key, q)
		}, func(p *consul.KVPair) map[string]Item {
			if p == nil {
				return nil
			}
			return pairs(consul.KVPairs{p})
		}}
	}
	return watchOf[consul.KVPairs]{log, client, func(ctx context.Context, q consul.Query) (consul.KVPairs, consul.Meta, error) {
		return client.KVList(ctx, t.Prefix, q)
	}, pairs}
}

// watchOf converts the answers of a blocking query to items.
type watchOf[T any] struct {
	log    hclog.Logger
	client *consul.Client
	ask    consul.Source[T]
	items  func(T) map[string]Item
}

// Watch implements TriggerSource.
func (w watchOf[T]) Watch(ctx context.Context, observe func(Observation)) error {
	warned := false
	return consul.Watch(ctx, w.client, consul.Query{}, w.ask, func(u consul.Update[T]) {
		switch {
		case u.Err != nil:
		case u.Meta.Filtered: // items that the token may not read are not removed
			if !warned {
				w.log.Warn("trigger paused: the token lacks rights to read everything that it watches")
			}
			warned = true
		default:
			warned = false
			observe(Observation{Items: w.items(u.Value)})
		}
	})
}

func instances(list []*consul.ServiceEntry) map[string]Item {
	items := map[string]Item{}
	for _, e := range list {
		if e.Checks.AggregatedStatus() == consul.HealthCritical || e.Checks.AggregatedStatus() == consul.HealthMaint {
			continue
		}
		address := e.Service.Address
		if address == "" {
			address = e.Node.Address
		}
		items[e.Node.Node+"/"+e.Service.ID] = encode(struct {
			Node    string            `json:"node"`
			ID      string            `json:"id"`
			Address string            `json:"address"`
			Port    int               `json:"port"`
			Tags    []string          `json:"tags"`
			Meta    map[string]string `json:"meta"`
		}{e.Node.Node, e.Service.ID, address, e.Service.Port, e.Service.Tags, e.Service.Meta})
	}
	return items
}

func pairs(list consul.KVPairs) map[string]Item {
	items := make(map[string]Item, len(list))
	for _, p := range list {
		key := strings.Clone(p.Key) // pairs share their memory
		if utf8.Valid(p.Value) {
			items[key] = encode(string(p.Value))
		} else {
			items[key] = encode(map[string]string{"base64": base64.StdEncoding.EncodeToString(p.Value)})
		}
	}
	return items
}

// encode returns v as JSON. All values that it gets can be encoded.
func encode(v any) Item {
	data, err := json.Marshal(v)
	if err != nil {
		return Item("null")
	}
	return data
}

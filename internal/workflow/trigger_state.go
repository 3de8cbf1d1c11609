package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
)

// triggerWatcher runs one trigger.
type triggerWatcher struct {
	r    *Runner
	conf config.Trigger
	o    TriggerOptions
	log  hclog.Logger
	doc  durable.Doc[triggerState]
	seen triggerState
	wake concurrency.Signal

	mu     sync.Mutex
	latest *Observation // not handled yet
}

// observe stores an observation for follow. A newer observation replaces one
// that was not handled; events are added to it unless their numbers started again.
func (w *triggerWatcher) observe(o Observation) {
	w.mu.Lock()
	if o.Happened && !o.Restarted && w.latest != nil {
		all := map[string]Item{}
		maps.Copy(all, w.latest.Items)
		maps.Copy(all, o.Items)
		o.Items, o.Restarted, o.UpTo = all, w.latest.Restarted, max(o.UpTo, w.latest.UpTo)
	}
	w.latest = &o
	w.mu.Unlock()
	w.wake.Notify()
}

// follow handles observations until ctx ends or the state cannot be written.
func (w *triggerWatcher) follow(ctx context.Context) error {
	for {
		if err := w.wake.Wait(ctx); err != nil {
			return err
		}
		w.mu.Lock()
		o := w.latest
		w.latest = nil
		w.mu.Unlock()
		if o == nil {
			continue
		}
		if err := w.handle(ctx, *o); err != nil {
			return err
		}
	}
}

// handle runs the workflow if o is a change. It saves the job first, so that the
// job runs once, also after a crash.
func (w *triggerWatcher) handle(ctx context.Context, o Observation) error {
	next := w.seen.after(o)
	changes := w.seen.changes(o)
	if w.seen.Known && len(changes) == 0 && !o.Restarted {
		return nil
	}
	if len(changes) > 0 && (w.seen.Known || o.Happened) {
		next.Count++
		change, err := json.Marshal(Change{
			Trigger: w.conf.Name, Kind: triggerKind(w.conf), Name: triggerSubject(w.conf), At: time.Now().UTC(),
			Changes: changes[:min(len(changes), maxChanges)], Total: len(changes),
		})
		if err != nil {
			return err
		}
		next.Pending = &pendingJob{Job: fmt.Sprintf("trigger-%s-%d-%d", w.conf.Name, next.Since, next.Count), Change: change}
	}
	if err := w.save(next); err != nil {
		return err
	}
	return w.finish(ctx)
}

// maxChanges limits the file that a workflow receives.
const maxChanges = 1000

// Change is the JSON document in the file $JORC_CHANGE of a job.
type Change struct {
	Trigger string       `json:"trigger"`
	Kind    string       `json:"kind"` // service, key, prefix, event or schedule
	Name    string       `json:"name"` // of the service, key, prefix or kind of event; the schedule and its zone
	At      time.Time    `json:"at"`   // of the observation
	Changes []ItemChange `json:"changes"`
	Total   int          `json:"total"` // of changes; Changes has at most maxChanges
}

// ItemChange is the change of one item: <node>/<id> of a service, a key, the number
// of an event, or a due time.
type ItemChange struct {
	Item   string          `json:"item"`
	Change string          `json:"change"` // added, changed, removed; happened; due, missed
	Value  json.RawMessage `json:"value"`  // the new value; null if it was removed
}

// Item is the content of one item as JSON.
type Item = json.RawMessage

// changes returns the differences between s and o, in the order of items.
func (s triggerState) changes(o Observation) []ItemChange {
	var list []ItemChange
	handled := s.Event
	if o.Restarted {
		handled = o.UpTo
	}
	for name, value := range o.Items {
		before, there := s.Items[name]
		switch {
		case o.Happened && number(name) <= handled:
		case o.Happened:
			list = append(list, ItemChange{Item: name, Change: "happened", Value: value})
		case !there:
			list = append(list, ItemChange{Item: name, Change: "added", Value: value})
		case before != digest(value):
			list = append(list, ItemChange{Item: name, Change: "changed", Value: value})
		}
	}
	for name := range s.Items {
		if _, there := o.Items[name]; !there && !o.Happened {
			list = append(list, ItemChange{Item: name, Change: "removed", Value: Item("null")})
		}
	}
	slices.SortFunc(list, func(a, b ItemChange) int {
		if o.Happened {
			return int(number(a.Item)) - int(number(b.Item))
		}
		return strings.Compare(a.Item, b.Item)
	})
	return list
}

func number(name string) uint64 {
	n, _ := strconv.ParseUint(name, 10, 64) // only events have numbers; 0 otherwise
	return n
}

func triggerKind(t config.Trigger) string {
	switch {
	case t.Service != "":
		return "service"
	case t.Key != "":
		return "key"
	case t.Prefix != "":
		return "prefix"
	case t.Schedule != "":
		return "schedule"
	}
	return "event"
}

func triggerSubject(t config.Trigger) string {
	if t.Schedule != "" {
		return t.Schedule + " " + t.Zone
	}
	return t.Service + t.Key + t.Prefix + t.Event
}

// triggerState records what a trigger has handled. It is written before a job runs and
// after it has ended.
type triggerState struct {
	Of      string            `json:"of"`              // kind and name of the watched object
	Known   bool              `json:"known"`           // there was an observation to compare with
	Since   int64             `json:"since"`           // Unix time of the first observation; part of job ids, so that they stay unique if the state is lost
	Count   int               `json:"count"`           // of changes
	Items   map[string]string `json:"items,omitempty"` // digests by item
	Event   uint64            `json:"event,omitempty"` // the last handled event
	Pending *pendingJob       `json:"pending,omitempty"`
	Last    *LastJob          `json:"last,omitempty"`

	// Of a schedule.
	Due     time.Time   `json:"due,omitzero"`      // the last due time that was handled
	LastRun time.Time   `json:"last_run,omitzero"` // when a job for a due time was started
	Missed  MissedTimes `json:"missed,omitzero"`
}

// LastJob is how the last job of a trigger ended.
type LastJob struct {
	Job   string    `json:"job"`
	State State     `json:"state"` // failed also if it could not be run
	Why   string    `json:"why"`   // one line; empty for success
	At    time.Time `json:"at"`
}

// pendingJob is a job that has not ended.
type pendingJob struct {
	Job    string          `json:"job"`
	Change json.RawMessage `json:"change"`
}

// after returns the state after o has been handled.
func (s triggerState) after(o Observation) triggerState {
	next := s
	next.Known = true
	if next.Since == 0 {
		next.Since = time.Now().Unix()
	}
	if o.Happened {
		if o.Restarted {
			next.Event = 0
		}
		next.Event = max(next.Event, o.UpTo)
		for name := range o.Items {
			next.Event = max(next.Event, number(name))
		}
		return next
	}
	next.Items = make(map[string]string, len(o.Items))
	for name, value := range o.Items {
		next.Items[name] = digest(value)
	}
	return next
}

func digest(value Item) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:12])
}

// loadTriggerState reads the state of a trigger on of. A state that is damaged, or is
// that of another object, counts as missing: the next observation is the initial
// state. For a damaged one, which is renamed, it logs a warning.
func (w *triggerWatcher) loadTriggerState(of string) (triggerState, error) {
	s, _, err := w.doc.Load()
	if errors.Is(err, durable.ErrDamaged) {
		w.log.Warn("the trigger's state is damaged: changes since it was saved start no workflow", "error", err)
		err = nil
	}
	return s.about(of), err
}

// triggerFormat is the format of a triggerState. The first documents had no number, which is read as 0.
const triggerFormat = 0

// triggerDoc is the document with the state of a trigger.
func triggerDoc(stateDir, trigger string) durable.Doc[triggerState] {
	return durable.NewDoc[triggerState](filepath.Join(stateDir, "triggers", trigger+".json"), triggerFormat)
}

// Valid returns an error for a state that is of no object.
func (s triggerState) Valid() error {
	if s.Of == "" {
		return errors.New("it does not say of what")
	}
	return nil
}

// about is s if it is that of a trigger on of, and an empty state otherwise.
func (s triggerState) about(of string) triggerState {
	if s.Of != of {
		return triggerState{Of: of}
	}
	return s
}

// save writes next to the state file and makes it the current state.
func (w *triggerWatcher) save(next triggerState) error {
	if err := w.doc.Save(next); err != nil {
		return fmt.Errorf("save the trigger's state: %w", err)
	}
	w.seen = next
	return nil
}

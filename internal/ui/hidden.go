package ui

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
)

// without returns the snapshot without what is hidden from a viewer: everything that is
// counted or summed up is computed again from the rest. An event, a run or another record that
// the viewer may read, but that names a host or a service that is hidden, is left out.
func (s *Snapshot) without(h *hidden) *Snapshot {
	next := *s
	next.hidden, next.State = h, s.State.Without(h.hosts, h.services)
	next.derived = newDerived(next.State)
	next.derived.stages = sync.OnceValue(next.stageStates)
	unsure := s.hostsWith(h.services)
	next.Times = map[string]HostTimes{}
	for node, t := range s.Times {
		if unsure[node] {
			t.Health, t.HealthSince = "", t.LifeSince
		}
		if !h.hosts[node] {
			next.Times[node] = t
		}
	}
	if h.hosts[s.Orchestrator.Node] {
		next.Orchestrator = kv.Holder{}
	}
	next.Journal = kept(s.Journal, h.names, func(e orchestrator.Event) bool {
		return !h.hosts[e.Node] && !h.services[e.Service] && !(e.Kind == event.HealthChanged && unsure[e.Node])
	})
	next.AllRuns = kept(s.AllRuns, h.names, func(r runs.Run) bool { return !h.runs[r.ID] })
	next.Finished = nil
	for _, f := range s.Finished {
		f.Hosts = kept(f.Hosts, h.names, nil)
		next.Finished = append(next.Finished, f)
	}
	next.Finished = kept(next.Finished, h.names, nil)
	next.Groups = nil
	for _, g := range s.Groups {
		if !h.groups[g.Group] {
			g.Holders, g.Queue = kept(g.Holders, h.names, nil), kept(g.Queue, h.names, nil)
			next.Groups = append(next.Groups, g)
		}
	}
	next.Cycles = kept(s.Cycles, h.names, nil)
	next.stageDocuments = map[string]stageRead{}
	for name, read := range s.stageDocuments {
		if !h.stages[name] {
			next.stageDocuments[name] = read.without(h)
		}
	}
	next.Members, _ = rollout.StateOf(next.State, s.Stored) // the error is in Partial
	next.Stored.Document = documentWithout(s.Stored.Document, next.Members, s.Now, h.names)
	next.Partial = kept(s.Partial, h.names, nil)
	if len(h.missing) > 0 {
		next.Partial = append(next.Partial, "not all of the cluster is shown: the token needs "+rightsText(h.missing))
	}
	next.problems = len(next.allProblems())
	return &next
}

// namesHidden reports whether an event names what is hidden.
func (s *Snapshot) namesHidden(e orchestrator.Event) bool {
	return s.hidden != nil && s.hidden.names.in(e)
}

// hostsWith are the hosts that run one of the services.
func (s *Snapshot) hostsWith(services map[string]bool) map[string]bool {
	hosts := map[string]bool{}
	if len(services) == 0 {
		return hosts
	}
	for node, h := range s.State.Hosts {
		for name := range h.Services {
			if services[name] {
				hosts[node] = true
			}
		}
	}
	return hosts
}

// without is what was read of a stage without hosts that are hidden.
func (r stageRead) without(h *hidden) stageRead {
	book, stops := &r.documents.Book, &r.documents.Stops
	if h.names.in(book.Step) {
		book.Step = nil
	}
	if h.names.in(book.PassedGate) {
		book.PassedGate = nil
	}
	stops.Stops, stops.Exempt = kept(stops.Stops, h.names, nil), kept(stops.Exempt, h.names, nil)
	return r
}

// documentWithout is the document of a rollout with numbers of the members that are shown, and
// without texts that name others.
func documentWithout(d rollout.Document, members rollout.State, now time.Time, n names) rollout.Document {
	if n.in(d.Stopped) {
		stop := *d.Stopped
		stop.Reason = unshown
		d.Stopped = &stop
	}
	if n.in(d.RollbackOf) {
		d.RollbackOf = &rollout.Rollback{Version: d.RollbackOf.Version, Reason: unshown, WithGates: d.RollbackOf.WithGates}
	}
	if n.in(d.Gate) {
		d.Gate = nil
	}
	if n.in(d.PassedGate) {
		d.PassedGate = nil
	}
	if n.in(d.Approval) {
		d.Approval = nil
	}
	for _, text := range []*string{&d.Reason, &d.DuringFreeze, &d.OverBudget} {
		if n.in(*text) {
			*text = unshown
		}
	}
	d.Counts = rollout.Describe(d, members, now).Now
	return d
}

// names are names that no text may have.
type names struct {
	words map[string]bool
	odd   []string // with characters that are not part of a word, as JSON writes them
}

func namesOf(sets ...map[string]bool) names {
	n := names{words: map[string]bool{}}
	for _, set := range sets {
		for name := range set {
			if strings.ContainsFunc(name, between) {
				n.odd = append(n.odd, strings.Trim(asJSON(name), `"`))
			}
			n.words[name] = true
		}
	}
	return n
}

// between reports whether r ends a word.
func between(r rune) bool {
	return r != '.' && r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// in reports whether what v holds names one of n as a word.
func (n names) in(v any) bool {
	if len(n.words) == 0 {
		return false
	}
	text := asJSON(v)
	if slices.ContainsFunc(n.odd, func(name string) bool { return strings.Contains(text, name) }) {
		return true
	}
	for word := range strings.FieldsFuncSeq(text, between) {
		if n.words[word] || n.words[strings.Trim(word, ".")] {
			return true
		}
	}
	return false
}

// asJSON is v in JSON; what cannot be written so is empty.
func asJSON(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}

// kept are the elements that ok keeps (nil: all) and that name nothing of n.
func kept[T any](all []T, n names, ok func(T) bool) (some []T) {
	for _, one := range all {
		if (ok == nil || ok(one)) && !n.in(one) {
			some = append(some, one)
		}
	}
	return some
}

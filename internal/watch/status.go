package watch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/text"
)

// State is where a template stands.
type State string

// The states of a template.
const (
	StateWaiting  State = "waiting"  // some of its data has not come yet
	StateRendered State = "rendered" // its file is as its data says
	StateHeld     State = "held"     // as rendered, but a guard keeps part of the file as it was
	StateStale    State = "stale"    // its file was rendered, also by an earlier process, but data it uses can no longer be read; see Stale
	StateFailed   State = "failed"   // rendering, the check, replacing or reloading failed; see Error
)

// Status is what there is to tell of a template.
type Status struct {
	Name        string
	Destination string
	Together    string
	Stage       string // of its unit; empty: none
	Reported    bool   // the content of its file is reported to the cluster
	State       State
	Since       time.Time // of State
	Queued      bool      // it waits for a slot of the fleet
	Waiting     []string  // what it waits for, why, and since when
	Held        []string  // what its guards hold back
	Stale       []string  // of its data, what cannot be read or is doubted, and since when
	StaleAt     time.Time // when it becomes StateStale unless its data can be read by then; zero: this is not foreseen
	Lost        []string  // of the ACL and extended attributes, what the file could not keep when it was last replaced
	Edited      string    // that another program changed the file, and what became of it
	Error       string    // of the last job; empty when it succeeded
	Failure     string    // which step Error is of, without output of commands; empty: none, or the host is held
	Changed     time.Time // when its file was last replaced by this process
	Checked     time.Time // when its last job ended
	Executions  uint64
	Writes      uint64
}

// wait is one thing that a template waits for.
type wait struct {
	id   string      // of the dependency; empty: none
	on   *dependency // nil: none
	text string
}

// published is the state of a template as the loop left it. The loop writes it while it
// holds Engine.mu; what the template waits for is put into words by Status.
type published struct {
	Status
	jobState State  // of the last job; State considers blocked, too
	waits    []wait // of the last job
	used     dependencies
	blocked  string // what its unit waits for before its next job; empty: nothing
	kept     bool   // its file was rendered before, by this process or an earlier one
}

// Status returns the state of all templates, in the order of the configuration.
func (e *Engine) Status() []Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	list, now := make([]Status, 0, len(e.statuses)), time.Now()
	for _, p := range e.statuses {
		s := p.Status
		if p.blocked != "" {
			s.Waiting = []string{p.blocked}
		} else {
			for _, w := range p.waits {
				s.Waiting = append(s.Waiting, e.explain(w))
			}
		}
		s.Stale = e.stale(p.used, p.jobState == StateRendered || p.jobState == StateHeld || p.kept)
		if s.State == StateRendered || s.State == StateHeld || s.State == StateWaiting && p.kept && p.blocked == "" {
			since, at := e.unreadable(p.used)
			switch {
			case since.IsZero():
			case now.Before(at):
				s.StaleAt = at
			default:
				s.State, s.Since, s.Waiting = StateStale, since, nil
			}
		}
		list = append(list, s)
	}
	return list
}

// unreadable returns since when data of used cannot be read, zero if all can be, and
// when that makes a template stale: at once where Consul refuses it, since that does not
// end by itself, and otherwise after the setting stale_after.
func (e *Engine) unreadable(used dependencies) (since, stale time.Time) {
	earlier := func(t, u time.Time) time.Time {
		if t.IsZero() || u.Before(t) {
			return u
		}
		return t
	}
	for _, d := range used {
		known := e.store.get(d.id)
		if known.err == nil {
			continue
		}
		at := known.since
		if !errors.Is(known.err, consul.ErrDenied) && !consul.IsPermanent(known.err) {
			at = at.Add(e.o.Allow.StaleAfter)
		}
		since, stale = earlier(since, known.since), earlier(stale, at)
	}
	return since, stale
}

// publish makes the state of a unit's templates visible to Status.
// write, which may be nil, brings each template's status up to date first.
func (e *Engine) publish(u *unit, write func(i int, t *tmpl)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, t := range u.templates {
		if write != nil {
			write(i, t)
		}
		p, state, queued := t.status, t.status.jobState, u.slot != ""
		p.blocked = u.blocked
		if queued {
			p.blocked = u.slot
		}
		if p.blocked != "" {
			state = StateWaiting
		}
		if state != p.State || queued != p.Queued {
			p.State, p.Queued, p.Since = state, queued, time.Now()
		}
	}
	if e.o.Changed != nil {
		e.o.Changed()
	}
}

// failureOf says which step failed, without output of commands and other texts that may
// quote a value.
func failureOf(rendering, replacing error) string {
	var check *replace.CheckError
	var reload *replace.ReloadError
	var link *durable.LinkError
	switch {
	case errors.Is(replacing, ErrHeld): // what holds the host is known elsewhere
		return ""
	case isTooMuch(rendering):
		return "its file is held: " + oneLine(rendering)
	case rendering != nil && strings.HasPrefix(rendering.Error(), parsing):
		return "its source cannot be parsed"
	case rendering != nil:
		return "it cannot be rendered: " + oneLine(rendering)
	case errors.As(replacing, &check):
		return "its check failed"
	case errors.As(replacing, &reload):
		return "its reload command failed"
	case errors.As(replacing, &link):
		return "its file cannot be replaced: " + oneLine(link)
	}
	return "its file cannot be replaced"
}

// waits lists what a template waits for.
func waits(r *rendering) []wait {
	var list []wait
	for _, id := range slices.Sorted(maps.Keys(r.missing)) {
		d := r.used[id]
		text := d.String()
		if why := r.missing[id]; why != "" {
			text += " " + why
		}
		list = append(list, wait{id: id, on: d, text: text})
	}
	return list
}

// explain says why what a template waits for has not come.
func (e *Engine) explain(w wait) string {
	known := e.store.get(w.id)
	switch {
	case known.err != nil:
		return fmt.Sprintf("%s since %s: %s", w.text, known.since.Format(time.RFC3339), w.on.reading(known.err))
	case w.id != "" && !known.known && known.doubtful:
		return fmt.Sprintf("%s, which %s %s", w.text, doubted, known.until.Format(time.RFC3339))
	case w.id != "" && !known.known:
		return w.text + ", which has not been read yet"
	}
	return w.text
}

// stale lists the data that is not up to date, in at most ten lines; kept says that the
// template's file was rendered before, also by an earlier process.
func (e *Engine) stale(used dependencies, kept bool) []string {
	var lines []string
	for _, d := range used {
		known := e.store.get(d.id)
		switch {
		case !known.known && !kept:
		case known.err != nil:
			lines = append(lines, fmt.Sprintf("%s since %s: %s", d, known.since.Format(time.RFC3339), d.reading(known.err)))
		case known.doubtful:
			lines = append(lines, fmt.Sprintf("%s %s %s", d, doubted, known.until.Format(time.RFC3339)))
		}
	}
	slices.Sort(lines)
	return text.Lines(lines, 10)
}

const doubted = "has lost something while Consul was reset or out of reach, which is believed at"

func holdLines(holds map[string]hold) []string {
	var lines []string
	for _, id := range slices.Sorted(maps.Keys(holds)) {
		h := holds[id]
		line := fmt.Sprintf("%s (since %s)", h.why, h.since.Format(time.RFC3339))
		if !h.until.IsZero() {
			line += ", believed at " + h.until.Format(time.RFC3339)
		}
		lines = append(lines, line)
	}
	return lines
}

// oneLine shortens an error for a status.
func oneLine(err error) string {
	if err == nil {
		return ""
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

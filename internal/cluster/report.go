package cluster

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/jorc/jorc/internal/text"
)

// States of a node in one category. The set is part of the layout of the index
// keys.
const (
	StateSuccess = "success"
	StateFailed  = "failed"
	StateRunning = "running"
	StatePending = "pending"
)

// States returns all states.
func States() []string { return []string{StateSuccess, StateFailed, StateRunning, StatePending} }

// Categories with a meaning; there may be others.
const (
	CategoryProvisioned = "provisioned" // set once, by what sets up the host
	CategoryConfig      = "config"      // the static workflow
	CategoryValidation  = "validation"  // whether what was configured works
	CategoryProcesses   = "processes"   // whether supervised processes stay up
)

// MaxDetail bounds CategoryState.Detail, in bytes: the tail of a task's output
// fits.
const MaxDetail = 8 << 10

// Report is what one node reports about itself, at nodes/<node>.
type Report struct {
	Version  string                   `json:"version,omitempty"`  // that it runs; empty: none yet
	Since    time.Time                `json:"since,omitzero"`     // of its arrival at Version
	Previous string                   `json:"previous,omitempty"` // the version before
	States   map[string]CategoryState `json:"states,omitempty"`   // by category
	// Grants are the host's answers to grants of changes, one for each change.
	Grants []Answer `json:"grants,omitempty"`
	// Lease is what the host asks for by itself; nil: nothing.
	Lease    *Wish  `json:"lease,omitempty"`
	HoldFile string `json:"hold_file,omitempty"` // why the hold file holds the host; empty: no file
	// Templates are the ones that failed, are stale or wait longer than usual, the first of them, and
	// MoreTemplates is how many others do. Read them with TemplateProblems.
	Templates     []TemplateProblem `json:"templates,omitempty"`
	MoreTemplates int               `json:"more_templates,omitempty"`
	// Expiring are the certificates and tokens that end soon, have ended or cannot be read, the
	// first of them. Read them with EndsSoon.
	Expiring []Expiring             `json:"expiring,omitempty"`
	Stages   map[string]StageReport `json:"stages,omitempty"` // by name
	// Files are those of templates with a stage, or whose configuration says so, by
	// destination.
	Files map[string]FileReport `json:"files,omitempty"`
}

// maxHoldFile bounds what a report says of a hold file, in bytes.
const maxHoldFile = 400

// WithHoldFile returns the report of a host whose hold file gives that reason.
func (r Report) WithHoldFile(reason string) Report {
	r.HoldFile = holdFileText(reason)
	return r
}

// HeldByFile is HoldFile as one short printable line, whatever the host wrote.
func (r Report) HeldByFile() string { return holdFileText(r.HoldFile) }

func holdFileText(s string) string { return printableLine(s, maxHoldFile) }

// printableLine returns s as one printable line of at most n bytes.
func printableLine(s string, n int) string {
	printable := func(c rune) rune {
		if unicode.IsPrint(c) || unicode.IsSpace(c) {
			return c
		}
		return unicode.ReplacementChar
	}
	return text.Line(strings.Map(printable, text.Head(s, 4*n)), n)
}

// TemplateProblem is a template of a host that failed, is stale or waits longer than usual.
type TemplateProblem struct {
	Name  string    `json:"name"`
	State string    `json:"state"` // waiting, stale, failed
	Since time.Time `json:"since,omitzero"`
	// Detail is what it waits for, what cannot be read, or which step failed. It has no value of a key or
	// param, and no output of a command.
	Detail string `json:"detail"`
}

// States of a TemplateProblem.
const (
	TemplateFailed  = "failed"
	TemplateStale   = "stale" // data that it uses can no longer be read
	TemplateWaiting = "waiting"
)

// Bounds of what a report says of templates.
const (
	maxTemplates      = 10
	maxTemplateDetail = 200 // bytes
)

// WithTemplates returns the report of a host with these problems of templates: failed
// ones first, then in order of their names, as many as a report may have.
func (r Report) WithTemplates(all []TemplateProblem) Report {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b TemplateProblem) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Name, b.Name))
	})
	kept := all[:min(len(all), maxTemplates)]
	r.Templates, r.MoreTemplates = nil, len(all)-len(kept)
	for _, p := range kept {
		r.Templates = append(r.Templates, p.bounded())
	}
	return r
}

// TemplateProblems returns Templates and MoreTemplates within their bounds, whatever the
// host wrote.
func (r Report) TemplateProblems() (all []TemplateProblem, more int) {
	all = []TemplateProblem{}
	for _, p := range r.Templates[:min(len(r.Templates), maxTemplates)] {
		all = append(all, p.bounded())
	}
	return all, max(0, r.MoreTemplates) + len(r.Templates) - len(all)
}

func (p TemplateProblem) bounded() TemplateProblem {
	p.Name, p.Detail = printableLine(p.Name, maxBoundedName), printableLine(p.Detail, maxTemplateDetail)
	if p.State != TemplateFailed && p.State != TemplateStale {
		p.State = TemplateWaiting
	}
	p.Since = p.Since.UTC().Truncate(time.Second)
	return p
}

func (p TemplateProblem) String() string {
	text := fmt.Sprintf("template %q %s", p.Name, p.State)
	switch p.State {
	case TemplateStale:
		text = fmt.Sprintf("template %q is stale", p.Name)
	case TemplateWaiting:
		text = fmt.Sprintf("template %q waits", p.Name)
	}
	if !p.Since.IsZero() {
		text += " since " + p.Since.Format(time.RFC3339)
	}
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	return text
}

// Expiring is a certificate or token on which a host relies, and that has to be replaced.
type Expiring struct {
	Kind  string    `json:"kind"`           // certificate, token
	Name  string    `json:"name"`           // the setting that names it, or the template that renders it
	Until time.Time `json:"until,omitzero"` // zero: it cannot be read
}

// maxExpiring bounds how many a report has.
const maxExpiring = 10

// WithExpiring returns the report of a host of which these have to be replaced, as many as a
// report may have: first the ones that cannot be read, then the others by their ends.
func (r Report) WithExpiring(all []Expiring) Report {
	r.Expiring = nil
	for _, e := range all {
		r.Expiring = append(r.Expiring, e.bounded())
	}
	slices.SortFunc(r.Expiring, func(a, b Expiring) int {
		return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.Name, b.Name))
	})
	r.Expiring = r.Expiring[:min(len(r.Expiring), maxExpiring)]
	return r
}

// EndsSoon returns Expiring within its bounds, whatever the host wrote.
func (r Report) EndsSoon() []Expiring {
	all := []Expiring{}
	for _, e := range r.Expiring[:min(len(r.Expiring), maxExpiring)] {
		all = append(all, e.bounded())
	}
	return all
}

func (e Expiring) bounded() Expiring {
	e.Kind, e.Name = printableLine(e.Kind, maxBoundedName), printableLine(e.Name, maxBoundedName)
	e.Until = e.Until.UTC().Truncate(time.Second)
	return e
}

// CategoryState is the state of a node in one category.
type CategoryState struct {
	State   string    `json:"state"`
	Since   time.Time `json:"since,omitzero"`
	Detail  string    `json:"detail,omitempty"`  // for people: what failed, what it waits for
	Version string    `json:"version,omitempty"` // the version that the state is about
	LogURL  string    `json:"log_url,omitempty"` // the full log
	Began   time.Time `json:"began,omitzero"`    // of a result: when the attempt that led to it began
	Suspect string    `json:"suspect,omitempty"` // why success is doubtful: it took more than one attempt
	NextTry time.Time `json:"next_try,omitzero"` // of what failed; zero: not known
	// Reported is when the same state was last reported again by a host script.
	Reported time.Time `json:"reported,omitzero"`

	more map[string]json.RawMessage // members that a newer jorc wrote
}

// At returns the report of the same node running version since now.
func (r Report) At(version string, now time.Time) Report {
	if version == r.Version {
		return r
	}
	r.Previous, r.Version, r.Since = r.Version, version, now
	return r
}

// With returns the report of the same node in state s in a category. While
// state and version stay, Since stays.
func (r Report) With(category string, s CategoryState, now time.Time) Report {
	old, known := r.States[category]
	s.Detail = text.Tail(s.Detail, MaxDetail)
	s.Since, s.Reported, s.more, s.Began = now, time.Time{}, old.more, time.Time{}
	switch {
	case !known || old.Version != s.Version:
	case old.State == s.State:
		s.Since, s.Reported, s.Began = old.Since, old.Reported, old.Began
	case old.State == StateRunning && s.State != StatePending:
		s.Began = old.Since
	}
	r.States = maps.Clone(r.States)
	if r.States == nil {
		r.States = map[string]CategoryState{}
	}
	r.States[category] = s
	return r
}

// Equal reports whether both are stored alike.
func (r Report) Equal(o Report) bool { return text.SameJSON(r, o) }

// CheckState returns text.ErrName or ErrBadState unless a node can be in that
// state in that category.
func CheckState(category, state string) error {
	return Report{States: map[string]CategoryState{category: {State: state}}}.Check()
}

// Check returns text.ErrName or ErrBadState for what cannot be stored.
func (r Report) Check() error {
	if r.Version != "" {
		if err := CheckVersion(r.Version); err != nil {
			return err
		}
	}
	for category, s := range r.States {
		if err := CheckCategory(category); err != nil {
			return err
		}
		if !slices.Contains(States(), s.State) {
			return fmt.Errorf("state %q of category %q: %w: it can be %s", s.State, category, ErrBadState, strings.Join(States(), ", "))
		}
	}
	return nil
}

// plain is CategoryState without its methods.
type plain CategoryState

// MarshalJSON writes what a newer jorc wrote beside what this one knows.
func (s CategoryState) MarshalJSON() ([]byte, error) {
	known, err := Encode(plain(s))
	if err != nil || len(s.more) == 0 {
		return known, err
	}
	more, err := Encode(s.more)
	if err != nil {
		return nil, err
	}
	known[len(known)-1] = ','
	return append(known, more[1:]...), nil
}

// UnmarshalJSON also takes the state alone, as an operator may write it by hand.
func (s *CategoryState) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*s = CategoryState{}
		return json.Unmarshal(data, &s.State)
	}
	var p plain
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	if err := json.Unmarshal(data, &p.more); err != nil {
		return err
	}
	maps.DeleteFunc(p.more, func(name string, _ json.RawMessage) bool {
		return slices.ContainsFunc(stateMembers, func(known string) bool { return strings.EqualFold(name, known) }) // as encoding/json does
	})
	*s = CategoryState(p)
	return nil
}

// stateMembers are the JSON names of CategoryState's fields.
var stateMembers = []string{"state", "since", "detail", "version", "log_url", "suspect", "next_try", "reported", "began"}

// Encode writes v as reports are stored.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// DefaultReportTTL returns how old the report of a host without a jorc agent may
// be, by category; see lastOf for the names of a category. Other categories do not age.
func DefaultReportTTL() map[string]time.Duration {
	return map[string]time.Duration{CategoryConfig: 24 * time.Hour, CategoryValidation: time.Hour}
}

// repeatAfter is the age from which a repeated report is recorded: a script that reports
// each minute costs four writes an hour. A report may be so much newer than what is recorded.
const repeatAfter = 15 * time.Minute

// Refreshed returns r with the time of a repeated report, if it is to be recorded.
func (r Report) Refreshed(category string, now time.Time) Report {
	s := r.States[category]
	if now.Sub(s.latest()) < repeatAfter {
		return r
	}
	s.Reported = now
	r.States = maps.Clone(r.States)
	r.States[category] = s
	return r
}

// scripted are the names under which host scripts report a category, see ParseResult.
var scripted = map[string][]string{
	CategoryConfig: {"puppet", "puppet_service"}, CategoryValidation: {"validation_service"},
}

// lastOf is when the category was last reported, under any of its names, as far as that
// was recorded.
func (r Report) lastOf(category string) (last time.Time, reported bool) {
	for _, name := range append([]string{category}, scripted[category]...) {
		if s, ok := r.States[name]; ok && (!reported || s.latest().After(last)) {
			last, reported = s.latest(), true
		}
	}
	return last, reported
}

// latest is when the state was last reported, as far as that was recorded.
func (s CategoryState) latest() time.Time {
	if s.Reported.After(s.Since) {
		return s.Reported
	}
	return s.Since
}

// Brief is the one line of a state's detail that says most. Programs say on the
// last one what went wrong; jorc quotes that on the first, with the task that it
// comes from.
func Brief(detail string) string {
	lines := strings.Split(strings.TrimSpace(detail), "\n")
	first, last := strings.TrimSpace(lines[0]), strings.TrimSpace(lines[len(lines)-1])
	if strings.Contains(first, last) {
		return first
	}
	return last
}

// Bounds of what one node says of itself. What is beyond them is not read, so
// that one node cannot fill the documents that all share.
const (
	MaxDocument    = 256 << 10 // of one document
	maxRoles       = 64
	maxTargets     = 512 // provided or required
	maxWorkflows   = 512 // defined on the host
	maxStates      = 64
	maxBoundedName = 256 // bytes

	maxWorkflowBytes = 32 << 10 // of all their names
)

// Bounded returns what of a record is beyond the bounds.
func (r Record) Bounded() error {
	for _, list := range []struct {
		what  string
		names []string
		most  int
	}{{"roles", r.Roles, maxRoles}, {"provided services", r.Provides, maxTargets}, {"keeper", []string{r.Keeper}, 1}, {"zone", []string{r.Zone}, 1}} {
		if err := boundedNames(list.what, list.names, list.most); err != nil {
			return err
		}
	}
	if err := cmp.Or(boundedWorkflows(r.Workflows), boundedWorkflows(r.Static), boundedWorkflows(r.Disturbing)); err != nil {
		return err
	}
	targets := make([]string, 0, 2*len(r.Requires))
	for _, q := range r.Requires {
		targets = append(targets, q.Target, q.For)
	}
	return boundedNames("required services", targets, 2*maxTargets)
}

func boundedWorkflows(names []string) error {
	bytes := 0
	for _, name := range names {
		bytes += len(name)
	}
	if bytes > maxWorkflowBytes {
		return fmt.Errorf("workflows: names of %d bytes, at most %d are read", bytes, maxWorkflowBytes)
	}
	return boundedNames("workflows", names, maxWorkflows)
}

// Bounded returns what of a node's report is beyond the bounds.
func (d Report) Bounded() error {
	names := []string{d.Version, d.Previous}
	for category, s := range d.States {
		names = append(names, category, s.State, s.Version)
	}
	if err := boundedNames("states", names, 2+3*maxStates); err != nil {
		return err
	}
	return cmp.Or(d.boundedStages(), d.boundedFiles())
}

func boundedNames(what string, names []string, most int) error {
	if len(names) > most {
		return fmt.Errorf("it has %d %s, at most %d are read", len(names), what, most)
	}
	for _, name := range names {
		if len(name) > maxBoundedName {
			return fmt.Errorf("%s: a name of %d bytes, at most %d are read", what, len(name), maxBoundedName)
		}
	}
	return nil
}

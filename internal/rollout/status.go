package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Status is a rollout with what is known of the members: what `show` tells.
type Status struct {
	Document
	State    string   `json:"state"`
	Now      Counts   `json:"now"`
	Admitted int      `json:"admitted"` // members within the rule
	Limit    int      `json:"limit"`    // of members out of service at one time; -1: none
	Holders  []Holder `json:"holders"`  // of slots, the longest first
	Failed   []Failed `json:"failed"`
	Down     []string `json:"down"`   // and not at the version; the first of them
	Behind   []string `json:"behind"` // not at the version; the first of them
	Out      []Out    `json:"out"`    // of service without a slot; the first of each reason
	// Strangers hold a slot and are no members.
	Strangers []string `json:"strangers"`
	Waits     []string `json:"waits"` // what it waits for, in words
}

// Holder is a member that holds a slot of the rollout.
type Holder struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since,omitzero"`
}

// Out are members that are out of service without a slot to be so, for one
// reason.
type Out struct {
	Reason string   `json:"reason"`
	Nodes  []string `json:"nodes"` // the first of them
	Count  int      `json:"count"` // all of them
}

// Failed is a member that failed.
type Failed struct {
	Node   string    `json:"node"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since,omitzero"`
	Holds  bool      `json:"holds"` // its slot
}

// Describe tells where the rollout stands. It is a pure function.
func Describe(d Document, v View, now time.Time) Status {
	s := newSurvey(d, v, now)
	status := Status{
		Document: d, State: d.State(), Now: s.counts, Limit: s.limit(), Waits: s.waits(),
		Holders: []Holder{}, Failed: []Failed{}, Strangers: append([]string{}, v.Strangers...),
		Down:     names(s.standing(down)),
		Behind:   names(s.with(func(m ranked) bool { return m.Version != d.Version })),
		Out:      s.out(),
		Admitted: len(s.with(func(m ranked) bool { return d.Rule.Admits(m.key) })),
	}
	for _, m := range v.Members {
		if m.Holds {
			status.Holders = append(status.Holders, Holder{m.Node, m.HeldSince})
		}
	}
	slices.SortStableFunc(status.Holders, func(a, b Holder) int { return a.Since.Compare(b.Since) })
	for _, m := range s.standing(failed) {
		status.Failed = append(status.Failed, Failed{m.Node, shorten(m.failure(d, now)), m.failedSince(d), m.Holds})
	}
	return status
}

func (s survey) out() []Out {
	by := map[string][]ranked{}
	for _, m := range append(slices.Clone(s.members), s.others...) {
		if why := m.outWhy(); why != "" {
			by[why] = append(by[why], m)
		}
	}
	all := []Out{}
	for _, why := range slices.Sorted(maps.Keys(by)) {
		all = append(all, Out{why, names(by[why]), len(by[why])})
	}
	return all
}

// failedSince is since when the member counts as failed, as far as it is known.
func (m Member) failedSince(d Document) time.Time {
	for _, s := range m.states() {
		if s.failedIn(d) {
			return s.Since
		}
	}
	return m.HeldSince
}

// waits lists what the rollout waits for.
func (s survey) waits() []string {
	d := s.doc
	switch {
	case d.Over():
		return []string{}
	case d.Stopped != nil:
		return []string{"'jorc update resume'"}
	case len(s.members) == 0:
		return []string{"a member that it is about: there is none"}
	case s.waitsForPromotion():
		return []string{"'jorc update promote'"}
	}
	waits := []string{}
	add := func(all []ranked, what string) {
		if len(all) > 0 {
			waits = append(waits, listed(all)+" "+what)
		}
	}
	add(append(s.standing(working), s.others...), "to finish")
	ready := s.with(func(m ranked) bool { return m.standing == pending && d.Rule.Admits(m.key) })
	for _, m := range ready {
		if m.Hold != "" {
			waits = append(waits, m.Node+", which is held: "+shorten(m.Hold))
		}
	}
	free := slices.DeleteFunc(ready, func(m ranked) bool { return m.Hold != "" })
	add(free, "to begin")
	if len(free) > 0 {
		add(s.blocking(), "to succeed: who failed keeps its slot")
	}
	if allowed, out := s.room(); d.UsesSlots() && len(out) >= allowed {
		add(out, fmt.Sprintf("to be in service again: %d may be out of it", allowed))
	}
	if len(waits) == 0 && s.gone() {
		add(s.standing(down), "to be back")
	}
	if d.Phase != RollingBack && !windowsOpen(d.Policy.Windows, s.now) {
		waits = append(waits, "its window, "+closed(windowsChange(d.Policy.Windows, s.now)).Reason)
	}
	if s.halted != "" {
		waits = slices.Insert(waits, 0, s.halted)
	}
	if len(waits) == 0 {
		waits = append(waits, "the orchestrator")
	}
	return waits[:min(len(waits), mostNames)]
}

// blocking are the members that failed and hold a slot, when no other is free.
func (s survey) blocking() []ranked {
	held := len(s.with(func(m ranked) bool { return m.Holds })) + len(s.others)
	if !s.doc.UsesSlots() || held < s.limit() {
		return nil
	}
	return s.with(func(m ranked) bool { return m.Holds && m.standing == failed })
}

// listed names members for people.
func listed(all []ranked) string {
	text := strings.Join(names(all), ", ")
	if len(all) > mostNames {
		text += fmt.Sprintf(" and %d more", len(all)-mostNames)
	}
	return text
}

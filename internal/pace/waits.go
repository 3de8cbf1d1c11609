package pace

import (
	"fmt"
	"slices"
)

// Waits lists what the change waits for.
func (v *Survey) Waits() []string {
	switch {
	case v.Over():
		return []string{}
	case v.Stopped != "":
		return []string{"'" + v.Words.Resume + "'"}
	case len(v.Members) == 0:
		return []string{"eligible members: there are none"}
	case v.WaitsForApproval():
		return []string{"'" + v.Words.Approve + "'"}
	}
	waits := append([]string{}, v.gateWaits()...)
	add := func(all []Member, what string) {
		if len(all) > 0 {
			waits = append(waits, Listed(all)+" "+what)
		}
	}
	if v.Halted != "" {
		waits = append(waits, v.Halted)
	}
	add(append(v.In(Working), v.Others...), "to finish")
	for _, m := range v.In(Working) {
		if why := m.Aside(); why != "" {
			waits = append(waits, m.Node+": "+why)
		}
	}
	if all := v.HeldUp(); len(all) > 0 && v.SettledStep() {
		waits = append(waits, "a host of the next step that is not held")
		for _, m := range all {
			waits = append(waits, m.Node+": "+m.Aside())
		}
	}
	ready := v.Admitted(func(m Member) bool { return m.State == Pending })
	barred := v.barred
	if !v.Paced() {
		barred = func(Member) Reason { return Reason{} } // a host that needs no grant begins by itself
	}
	free := slices.DeleteFunc(slices.Clone(ready), func(m Member) bool { return !barred(m).None() })
	frozen, isFrozen := v.Frozen(nil)
	for _, m := range ready {
		if why := barred(m).Text(v.Words.Noun); why != "" && !(isFrozen && why == frozen.String()) {
			waits = append(waits, m.Node+": "+why)
		}
	}
	add(free, "to begin")
	if allowed, out := v.Room(); v.Paced() && len(free) > 0 && len(out) >= allowed {
		broken := slices.DeleteFunc(out, func(m Member) bool { return m.State == Working })
		add(broken, fmt.Sprintf("to be in service again: %d may be out of it, and '%s' frees the place of a host with a grant", allowed, v.Words.GiveUp))
	}
	for _, m := range free {
		if limit, ok := v.Places.Admit(m.Node); !ok && v.Paced() {
			waits = append(waits, v.Places.Explain(limit))
			break
		}
	}
	if len(waits) == 0 && v.TooManyDown() {
		add(v.In(Down), "to come back")
	}
	if !v.InWindow() {
		waits = append(waits, "its window: "+ClosedText(v.windowChange()))
	}
	if isFrozen {
		waits = append(waits, "the end of a freeze: "+frozen.String())
	}
	if v.now.Before(v.Quiet) {
		waits = append(waits, v.stopped().Text(v.Words.Noun))
	}
	if len(waits) == 0 {
		waits = append(waits, "the orchestrator")
	}
	return waits[:min(len(waits), MostNames)]
}

// Blocker is what a change in progress waits for.
type Blocker string

// Values of Blocker, in the order in which they count.
const (
	BlockedByPause     Blocker = "pause"
	BlockedByMembers   Blocker = "no_members" // none takes part
	BlockedByPromotion Blocker = "promotion"  // an operator's consent after the canary, or after a step
	BlockedByBake      Blocker = "bake"       // a step is done and has to stay so
	BlockedByCluster   Blocker = "cluster"    // it is paused, or the orchestrator only observes
	BlockedByGate      Blocker = "gate"       // the workflow that the step has to pass
	BlockedByWindow    Blocker = "window"
	BlockedByFreeze    Blocker = "freeze" // of the whole cluster
	BlockedByHosts     Blocker = "hosts"  // that are to finish, to begin or to come back
)

// Blockers returns all values of Blocker.
func Blockers() []Blocker {
	return []Blocker{BlockedByPause, BlockedByMembers, BlockedByPromotion, BlockedByBake, BlockedByCluster, BlockedByGate, BlockedByWindow, BlockedByFreeze, BlockedByHosts}
}

// Blocker returns what the change waits for; empty: it is over.
func (v *Survey) Blocker() Blocker {
	_, isFrozen := v.Frozen(nil)
	switch {
	case v.Over():
		return ""
	case v.Stopped != "":
		return BlockedByPause
	case len(v.Members) == 0:
		return BlockedByMembers
	case v.WaitsForApproval():
		return BlockedByPromotion
	case v.Gate != nil && !v.Gate.Baked:
		return BlockedByBake
	case v.Halted != "":
		return BlockedByCluster
	case v.Gate != nil && !v.Gate.Passed:
		return BlockedByGate
	case v.Paced() && !v.InWindow():
		return BlockedByWindow
	case isFrozen:
		return BlockedByFreeze
	}
	return BlockedByHosts
}

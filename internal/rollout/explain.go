package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/nodes"
)

// Why reads what the rollout says to node, see Explain. It returns what Show
// returns.
func (r *Rollouts) Why(ctx context.Context, node string) ([]nodes.Reason, error) {
	s, err := r.Load(ctx)
	switch {
	case err != nil:
		return nil, err
	case s.Damaged != nil:
		return []nodes.Reason{{Reason: nodes.WhyRollout, Detail: s.usable(r).Error()}}, nil
	case !s.Exists || s.Document.Policy.Plain():
		return Explain(s.Snapshot, Self{Node: node}, View{}, r.now()), nil
	}
	v, err := r.Observe(ctx, s)
	if err != nil {
		return nil, err
	}
	self := Self{Node: node}
	for _, m := range v.Members {
		if m.Node == node {
			self = Self{Node: node, Roles: m.Roles, Zone: m.Zone, Member: true, Outside: m.Outside, Holds: m.Holds, Sick: m.Sick}
		}
	}
	return Explain(s.Snapshot, self, v, r.now()), nil
}

// Explain tells what the rollout says to a node that does not run the desired
// version: nothing when it may begin and nothing is in its way. It is a pure
// function.
func Explain(s Snapshot, self Self, v View, now time.Time) []nodes.Reason {
	a := Admit(s, self, now)
	status := Describe(s.Document, v, now)
	switch {
	case a.OK() && self.Holds && a.Slot:
		return []nodes.Reason{{Reason: nodes.WhySlot, Detail: heldText(self.Node, status)}}
	case a.OK() && a.Slot && len(status.Holders) >= status.Limit:
		return []nodes.Reason{{Reason: nodes.WhySlot, Detail: slotText(status)}}
	case a.OK(), a.Verdict == Nothing:
		return nil
	}
	detail := a.Reason
	if a.Verdict == NotYet {
		detail += fmt.Sprintf(", %d of %d members are admitted", status.Admitted, status.Now.Members)
	}
	if (a.Verdict == NotYet || a.Verdict == Full) && len(status.Waits) > 0 {
		detail += "; it waits for " + strings.Join(status.Waits, "; ")
	}
	return []nodes.Reason{{Reason: nodes.WhyRollout, Detail: detail}}
}

// heldText says why a node that holds a slot does, and for how long it will.
func heldText(node string, s Status) string {
	text := "it holds a slot"
	for _, h := range s.Holders {
		if h.Node == node {
			text += " since " + h.Since.UTC().Format(time.RFC3339)
		}
	}
	for _, f := range s.Failed {
		if f.Node == node {
			return text + ", stays out of service with it and tries again by itself until it succeeds: " + f.Reason
		}
	}
	return text + ": it is under way"
}

// slotText says who has the slots that there are.
func slotText(s Status) string {
	var all []string
	for _, h := range s.Holders[:min(len(s.Holders), mostNames)] {
		text := h.Node + " since " + h.Since.UTC().Format(time.RFC3339)
		if slices.ContainsFunc(s.Failed, func(f Failed) bool { return f.Node == h.Node }) {
			text += ", which failed and keeps it"
		}
		all = append(all, text)
	}
	if more := len(s.Holders) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	text := fmt.Sprintf("waits for a slot: %d may be held", s.Limit)
	if len(all) > 0 {
		text += ": by " + strings.Join(all, ", ")
	}
	return text
}

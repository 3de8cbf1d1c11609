package pace

import "cmp"

// Exceptions say why a change does not follow rules of its cluster. They are shown to
// everyone, and stand in the audit. Empty: it follows them.
type Exceptions struct {
	// DuringFreeze is why hosts begin although they are frozen.
	DuringFreeze string `json:"during_freeze,omitempty"`
	// OverBudget is why hosts are taken out of service beyond the limits that the budget sets
	// for the cluster, for roles and zones. They count as out for every other change.
	OverBudget string `json:"over_budget,omitempty"`
}

// Or returns e with what it does not say from other.
func (e Exceptions) Or(other Exceptions) Exceptions {
	return Exceptions{DuringFreeze: cmp.Or(e.DuringFreeze, other.DuringFreeze), OverBudget: cmp.Or(e.OverBudget, other.OverBudget)}
}

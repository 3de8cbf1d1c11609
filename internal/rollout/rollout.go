// Package rollout decides how a new version reaches the members of a cluster:
// the policy, the document that all nodes read, who is admitted by it, and what
// comes next.
//
// The document at the key rollout holds no list of nodes. All members stand in
// one order (see Key), and the document says which stretch of it is admitted;
// each node decides for itself whether it is within (Admit). Whoever
// orchestrates looks at all members and moves that stretch on (Plan). Both are
// pure functions.
//
// How many of those that are admitted may be out of service at one time is the
// number of slots of the group called Slots; a node holds one from before it
// begins until it has been healthy for as long as the policy wants, and one
// that failed keeps it.
package rollout

// Slots is the name of the slot group that rollouts use.
const Slots = "rollout"

// ClaimID is the id of a node's claim in that group.
const ClaimID = "rollout"

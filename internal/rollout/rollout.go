// Package rollout decides how a new version reaches the members of a cluster.
//
// The document at the key current/rollout holds the version, its policy and the
// phase. Where there is a policy the holder of the orchestrator's lock paces the
// members by grants: one for each host that may begin, at the key
// host/<node>/grant. The host accepts or declines it in its own report.
// docs/rollouts.md has the protocol, and docs/adr/0013 says why.
//
// Plan decides what becomes of a rollout and who is offered a grant; Describe and
// Explain say the same to people. They are pure functions.
package rollout

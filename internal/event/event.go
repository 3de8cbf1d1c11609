// Package event has what is decided, and the kinds of events that it becomes: an orchestrator journals them, delivers them to sinks, and shows them.
package event

import "slices"

// Kinds of events about a change: a version, the files of a stage, a run or a lease. They mean the same for each of them.
const (
	// ChangeBegan: the first host of the change begins, or the version was written past jorc.
	ChangeBegan = "change_began"
	// ChangePaced: a version without a policy is paced from now on, because of a budget or a freeze.
	ChangePaced = "change_paced"
	// ChangeStepBegan: hosts of a step may begin; of a run: members are given their jobs.
	ChangeStepBegan = "change_step_began"
	// ChangeStepDone: a step is done, and its gate begins.
	ChangeStepDone = "change_step_done"
	// ChangeGatePassed: a step passed its gate.
	ChangeGatePassed = "change_gate_passed"
	// ChangeHostFailed: the change failed on a host, or what it did there is lost; the others continue.
	ChangeHostFailed = "change_host_failed"
	// ChangeHostBack: a host whose part counted as lost continues.
	ChangeHostBack = "change_host_back"
	// ChangeStopped: no further host begins: hosts failed, a gate did, or a deadline is over.
	ChangeStopped = "change_stopped"
	// ChangeFailuresAccepted: an operator resumed the change, and its failures no longer count.
	ChangeFailuresAccepted = "change_failures_accepted"
	// ChangeTakenBack: the version before is rolled out again.
	ChangeTakenBack = "change_taken_back"
	// ChangeDone: the change is over, and all hosts that take part have it.
	ChangeDone = "change_done"
	// ChangeEnded: the change is over before that: it failed, or was aborted, cancelled or superseded.
	ChangeEnded = "change_ended"
)

// Kinds of events about runs that are no longer kept or cannot be read, and about the rules that start runs.
const (
	// RunPruned: runs that ended long ago are forgotten.
	RunPruned = "run_pruned"
	// RunUnreadable: a document of runs is damaged or of a newer jorc.
	RunUnreadable = "run_unreadable"
	// RuleInvalid: a rule cannot be used.
	RuleInvalid = "rule_invalid"
	// RuleAdded: a rule asks a member to run its workflow.
	RuleAdded = "rule_added"
	// RuleGone: a rule was removed.
	RuleGone = "rule_gone"
	// RuleDue: a rule with a schedule starts a run.
	RuleDue = "rule_due"
	// RuleMissed: a due time is skipped.
	RuleMissed = "rule_missed"
)

// Kinds of events about the cluster.
const (
	// OperatorChange: a command wrote to the cluster.
	OperatorChange = "operator_change"
	// OrchestratorFailing: three cycles of the orchestrator in a row failed.
	OrchestratorFailing = "orchestrator_failing"
	// OrchestratorRecovered: cycles succeed again.
	OrchestratorRecovered = "orchestrator_recovered"
	// ClusterCreated: the cluster has a profile.
	ClusterCreated = "cluster_created"
	// ClusterDeleted: it no longer has one.
	ClusterDeleted = "cluster_deleted"
	// ClusterChanged: the profile, a hold, observe-only mode, or how many lead.
	ClusterChanged = "cluster_changed"
	// ClusterPaused: nothing new begins in the cluster.
	ClusterPaused = "cluster_paused"
	// ClusterResumed: that is over.
	ClusterResumed = "cluster_resumed"
	// HoldEnded: a hold, a pause or observe-only mode ended by itself.
	HoldEnded = "hold_ended"
	// FreezeBegan: nothing new begins that takes hosts out of service.
	FreezeBegan = "freeze_began"
	// FreezeEnded: that is over.
	FreezeEnded = "freeze_ended"
	// DesiredVersionChanged: hosts should run another version.
	DesiredVersionChanged = "desired_version_changed"
	// LeadersChanged: other members lead.
	LeadersChanged = "leaders_changed"
	// ManagersChanged: other members are managers.
	ManagersChanged = "managers_changed"
	// DocumentDamaged: a document in Consul cannot be read.
	DocumentDamaged = "document_damaged"
	// DocumentReadable: it can be read again.
	DocumentReadable = "document_readable"
)

// Kinds of events about members.
const (
	// MemberJoined: a host joined the cluster.
	MemberJoined = "member_joined"
	// MemberLeft: it left.
	MemberLeft = "member_left"
	// MemberChanged: what a member says of itself.
	MemberChanged = "member_changed"
	// NodeUp: a host is up.
	NodeUp = "node_up"
	// NodeDown: it is down.
	NodeDown = "node_down"
	// NodeSuspect: gossip does not hear it, and the orchestrator reaches it.
	NodeSuspect = "node_suspect"
	// NodeGone: it is no longer in the catalog.
	NodeGone = "node_gone"
	// AgentUp: a jorc agent is up.
	AgentUp = "agent_up"
	// AgentDown: it is down.
	AgentDown = "agent_down"
	// HealthChanged: another check is the worst of a host, or its state is another.
	HealthChanged = "health_changed"
	// VersionChanged: a host runs another version.
	VersionChanged = "version_changed"
	// StateChanged: a category of a host's state.
	StateChanged = "state_changed"
)

// Kinds of events about services.
const (
	// ServiceUp: a service has functional instances again, or for the first time.
	ServiceUp = "service_up"
	// ServiceDown: it has none longer.
	ServiceDown = "service_down"
	// ServiceChanged: it has more or fewer.
	ServiceChanged = "service_changed"
)

// Kinds returns all kinds of events, sorted. A newer jorc may know more.
func Kinds() []string {
	all := []string{
		ChangeBegan, ChangePaced, ChangeStepBegan, ChangeStepDone, ChangeGatePassed, ChangeHostFailed, ChangeHostBack, ChangeStopped,
		ChangeFailuresAccepted, ChangeTakenBack, ChangeDone, ChangeEnded,
		RunPruned, RunUnreadable, RuleInvalid, RuleAdded, RuleGone, RuleDue, RuleMissed,
		OperatorChange, OrchestratorFailing, OrchestratorRecovered, ClusterCreated, ClusterDeleted, ClusterChanged, ClusterPaused, ClusterResumed,
		HoldEnded, FreezeBegan, FreezeEnded, DesiredVersionChanged, LeadersChanged, ManagersChanged, DocumentDamaged, DocumentReadable,
		MemberJoined, MemberLeft, MemberChanged, NodeUp, NodeDown, NodeSuspect, NodeGone, AgentUp, AgentDown, HealthChanged, VersionChanged, StateChanged,
		ServiceUp, ServiceDown, ServiceChanged,
	}
	slices.Sort(all)
	return all
}

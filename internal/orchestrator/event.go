package orchestrator

import "time"

// Kinds of events that Diff finds. Decisions have kinds of their own.
const (
	ClusterCreated        = "cluster_created"
	ClusterDeleted        = "cluster_deleted"
	ClusterChanged        = "cluster_changed" // profile, holds, observe only, how many lead
	ClusterPaused         = "cluster_paused"
	ClusterResumed        = "cluster_resumed"
	DesiredVersionChanged = "desired_version_changed"
	LeadersChanged        = "leaders_changed"
	ManagersChanged       = "managers_changed"

	MemberJoined  = "member_joined"
	MemberLeft    = "member_left"
	MemberChanged = "member_changed"

	NodeUp      = "node_up"
	NodeDown    = "node_down"
	NodeSuspect = "node_suspect"
	NodeGone    = "node_gone" // it is not in the catalog any more
	AgentUp     = "agent_up"
	AgentDown   = "agent_down"

	HealthChanged  = "health_changed"
	VersionChanged = "version_changed"
	StateChanged   = "state_changed"

	ServiceUp      = "service_up"   // it has functional instances again, or for the first time
	ServiceDown    = "service_down" // it has none any more
	ServiceChanged = "service_changed"

	DocumentDamaged  = "document_damaged"
	DocumentReadable = "document_readable" // again
)

// Kinds returns all kinds of events that Diff finds.
func differenceKinds() []string {
	return []string{
		ClusterCreated, ClusterDeleted, ClusterChanged, ClusterPaused, ClusterResumed, DesiredVersionChanged, LeadersChanged, ManagersChanged,
		MemberJoined, MemberLeft, MemberChanged, NodeUp, NodeDown, NodeSuspect, NodeGone, AgentUp, AgentDown,
		HealthChanged, VersionChanged, StateChanged, ServiceUp, ServiceDown, ServiceChanged, DocumentDamaged, DocumentReadable,
	}
}

// Event is one observed difference between two views, or one decision.
type Event struct {
	Seq      uint64    `json:"seq"` // from 1, without gaps; given when it is journalled
	Time     time.Time `json:"time"`
	Kind     string    `json:"kind"`
	Node     string    `json:"node,omitempty"`
	Service  string    `json:"service,omitempty"`
	Category string    `json:"category,omitempty"` // of a state
	Text     string    `json:"text"`               // for people
	Before   string    `json:"before,omitempty"`
	After    string    `json:"after,omitempty"`
}

// maxText bounds Text, Before and After, in bytes.
const maxText = 1000

// Bounded returns e with texts of a length that a journal takes.
func (e Event) Bounded() Event {
	for _, s := range []*string{&e.Text, &e.Before, &e.After} {
		*s = truncate(*s, maxText)
	}
	for _, s := range []*string{&e.Kind, &e.Node, &e.Service, &e.Category} {
		*s = truncate(*s, maxText)
	}
	return e
}

package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/text"
)

// Layout is the number of the layout of a cluster's keys. It grows when keys
// move. The key KeyLayout holds it; a cluster of another layout is refused.
const Layout = 3

// Keys of a cluster, below its prefix. Consul's prefixes are byte prefixes: one
// query on PrefixCurrent covers current_version and current/….
const (
	KeyProfile    = "profile"
	PrefixCurrent = "current"
	KeyDesired    = "current_version"
	KeyLayout     = "current/layout"
	KeyControl    = "current/control"
	KeyVersion    = "current/version"
	KeyLeaders    = "current/leaders"
	PrefixHosts   = "host/"
	PrefixReports = "nodes/"
	PrefixRunning = "running_version/"
	PrefixStatus  = "status/"
	PrefixSlots   = "slots/"
	PrefixRuns    = "runs/"
	// PrefixActiveRuns is where the runs in progress are listed.
	PrefixActiveRuns = PrefixRuns + ".active/"
	KeyElection      = "elect/lock"
	// OrchestratorLock is the lock that the orchestrator of a cluster holds.
	OrchestratorLock = "orchestrate/lock"
	KeyGrantLedger   = "orchestrate/grants"
	KeyNextCycle     = "orchestrate/next"
	KeyCycleReports  = "orchestrate/reports"
	// PrefixDecided is where decisions of the orchestrator stand until they are journalled.
	PrefixDecided = "orchestrate/decided/"
	PrefixView    = "view/"
	PrefixEvents  = "events/"
	PrefixHistory = "history/"
	PrefixAudit   = "audit/"
	// KeyChanges is the log of changes that commands made, see AuditLog.
	KeyChanges = PrefixAudit + "changes"
	// KeyProfileHistory is the history of the profile, see profile.History.
	KeyProfileHistory = PrefixAudit + "profile"
	PrefixStages      = "stages/"
	// PrefixChanges has what the orchestrator keeps of changes.
	PrefixChanges   = "changes/"
	KeyVersionState = PrefixChanges + VersionChange + "/state"
)

// Ends of the keys below host/<node>, one document each.
const (
	EndMember  = "/member"
	EndHold    = "/hold"
	EndGrants  = "/grants"
	EndOrder   = "/maintenance"
	EndResults = "/results"
)

// HostPrefix returns the prefix of the keys that the agent on node watches.
func HostPrefix(node string) string { return PrefixHosts + node + "/" }

// MemberKey returns the key of node's record.
func MemberKey(node string) string { return PrefixHosts + node + EndMember }

// HoldKey returns the key of the hold of node.
func HoldKey(node string) string { return PrefixHosts + node + EndHold }

// GrantsKey returns the key of what is granted to node in changes, see package change.
func GrantsKey(node string) string { return PrefixHosts + node + EndGrants }

// OrderKey returns the key of the lease that an operator asks for node.
func OrderKey(node string) string { return PrefixHosts + node + EndOrder }

// ResultsKey returns the key of what node says of its jobs of runs.
func ResultsKey(node string) string { return PrefixHosts + node + EndResults }

// Names of the documents of a stage.
const (
	endState = "state"
	endStops = "stops"
)

// StageStateKey returns the key of how far the change of a stage is.
func StageStateKey(stage string) string { return PrefixStages + stage + "/" + endState }

// StageStopsKey returns the key of what stopped a stage.
func StageStopsKey(stage string) string { return PrefixStages + stage + "/" + endStops }

// ReportKey returns the key of what node reports.
func ReportKey(node string) string { return PrefixReports + node }

// TailKey returns the key of what the last task of a run printed on node.
func TailKey(run, node string) string { return PrefixRuns + run + "/tails/" + node }

// NodeOf returns the node whose record, hold, grants, results or report is at key,
// below the cluster's prefix; ok is false for other keys.
func NodeOf(key string) (node string, ok bool) {
	if rest, below := strings.CutPrefix(key, PrefixHosts); below {
		node, _, ok = strings.Cut(rest, "/")
		return node, ok
	}
	return strings.CutPrefix(key, PrefixReports)
}

// Kind is a kind of token, by what its holder does.
type Kind string

// Kinds of tokens. An agent's token is for one node.
const (
	KindAgent        Kind = "agent"
	KindElector      Kind = "elector" // an agent whose member may lead
	KindOrchestrator Kind = "orchestrator"
	KindOperator     Kind = "operator"
	KindProfile      Kind = "profile" // of a job
	KindAnonymous    Kind = "anonymous"
)

// Key is one key of a cluster, or all keys of one pattern.
type Key struct {
	// Pattern is the key below the cluster's prefix. <name> means one
	// segment and … for any number of them.
	Pattern string
	Holds   string
	Format  string // "JSON" with a format number, "text", "lock"
	// Writers may write it beside the operator, who may write every key. An agent
	// may write the ones that end with, or are below, its own <node> only.
	Writers []Kind
	Readers string // who watches or reads it
	// Purpose is what an agent writes it for; empty: agents do not write it, or only
	// in a cluster without ACLs.
	Purpose Purpose
}

// Purpose is what an agent writes a key for, by its configuration.
type Purpose string

// Purposes of an agent's keys.
const (
	PurposeReport Purpose = "static configuration reports its version"
	PurposeMember Purpose = "membership"
	PurposeRuns   Purpose = "runs"
	PurposeSlots  Purpose = "slot"
)

// AgentKeys returns the keys below the cluster's prefix that the agent on node writes
// for a purpose. group is the group of slots with PurposeSlots.
func AgentKeys(p Purpose, node, group string) []string {
	var keys []string
	for _, k := range Keys {
		if k.Purpose == p {
			keys = append(keys, fixed(strings.NewReplacer("<node>", node, "<group>", group).Replace(k.Pattern)))
		}
	}
	return keys
}

// fixed is what stands in a pattern before its first name; a slash at its end means all keys
// below it.
func fixed(pattern string) string {
	end := strings.IndexAny(pattern, "<…")
	if end < 0 {
		return pattern
	}
	return pattern[:end]
}

// IsKey reports whether key, below the cluster's prefix, is one of Keys.
func IsKey(key string) bool {
	segments := strings.Split(key, "/")
	return slices.ContainsFunc(Keys, func(k Key) bool { return k.matches(segments) })
}

func (k Key) matches(segments []string) bool {
	_, _, ok := k.match(segments)
	return ok
}

// match returns what stands in a key for the names of the pattern, and how many of its
// segments are fixed.
func (k Key) match(segments []string) (names map[string]string, fixed int, ok bool) {
	pattern := strings.Split(k.Pattern, "/")
	names = map[string]string{}
	for i, p := range pattern {
		if i >= len(segments) {
			return nil, 0, false
		}
		if p == "…" {
			return names, fixed, true
		}
		literal, name, named := strings.Cut(strings.TrimSuffix(p, ">"), "<")
		rest, begins := strings.CutPrefix(segments[i], literal)
		switch {
		case !begins, !named && rest != "":
			return nil, 0, false
		case named:
			names[name] = rest
		default:
			fixed++
		}
	}
	return names, fixed, len(segments) == len(pattern)
}

// Subject is what a key is about, by the table of keys; all fields empty: the whole
// cluster.
type Subject struct{ Node, Run, Stage, Group string }

// SubjectOf returns what a key below the cluster's prefix is about. Of several patterns
// the one with the most fixed segments counts.
func SubjectOf(key string) (about Subject) {
	segments, most := strings.Split(key, "/"), -1
	for _, k := range Keys {
		if names, fixed, ok := k.match(segments); ok && fixed > most {
			most = fixed
			about = Subject{Node: names["node"], Run: names["run"], Stage: names["stage"], Group: names["group"]}
		}
	}
	return about
}

// Keys are all keys of a cluster. Policies, the needs that 'jorc doctor' checks
// and docs/security.md are made from them.
var Keys = []Key{
	{KeyProfile, "params, meta and schemas that all members share", "JSON", []Kind{KindProfile}, "agents with templates or jobs; commands", ""},
	{KeyDesired, "the desired version", "text", []Kind{KindOrchestrator}, "every agent", ""},
	{KeyLayout, "the number of the layout of these keys", "text", nil, "every agent; commands", ""},
	{KeyControl, "pause, observe-only, holds of the cluster and of roles, the budget, freezes", "JSON", []Kind{KindOrchestrator}, "every agent; the orchestrator; commands", ""},
	{KeyVersion, "what the rollout of the desired version is asked for: its policy, whether it is paused or over", "JSON", []Kind{KindOrchestrator}, "every agent; the orchestrator; commands", ""},
	{KeyVersionState, "how far that rollout is", "JSON", []Kind{KindOrchestrator}, "the orchestrator; commands", ""},
	{KeyLeaders, "who leads and who manages", "JSON", []Kind{KindElector}, "every agent; electors; the orchestrator; commands", ""},
	{PrefixHosts + "<node>" + EndMember, "the member: roles, zone, its own params and meta, names of its workflows, whether it may orchestrate", "JSON", []Kind{KindAgent}, "that agent; electors; the orchestrator; commands", PurposeMember},
	{PrefixHosts + "<node>" + EndHold, "the hold of that node, or its exception from a wider one", "JSON", nil, "that agent; the orchestrator; commands", ""},
	{PrefixHosts + "<node>" + EndGrants, "the permission for each change of which the host may do its part, or what it waits for", "JSON", []Kind{KindOrchestrator}, "that agent; the orchestrator; commands", ""},
	{PrefixHosts + "<node>" + EndOrder, "that an operator asks for a lease of that node", "JSON", nil, "that agent; commands", ""},
	{PrefixHosts + "<node>" + EndResults, "what that node says of its jobs of runs", "JSON", []Kind{KindAgent}, "that agent; the orchestrator", PurposeRuns},
	{PrefixReports + "<node>", "what that node reports: version, states, previous version", "JSON", []Kind{KindAgent}, "the orchestrator; commands", PurposeReport},
	{PrefixRunning + "<version>/<node>", "a projection of nodes/ for foreign readers", "text", []Kind{KindOrchestrator, KindAgent}, "foreign scripts", ""},
	{PrefixStatus + "<category>/<state>/<node>", "a projection of nodes/ for foreign readers", "JSON", []Kind{KindOrchestrator, KindAgent}, "foreign scripts", ""},
	{PrefixSlots + "group/<group>", "how many slots a group has, for templates and 'jorc cluster lock'", "JSON", []Kind{KindAgent}, "agents that wait for a slot; commands", PurposeSlots},
	{PrefixSlots + "claim/<node>/…", "slots that this node's processes hold or wait for, locked by their sessions", "JSON", []Kind{KindAgent}, "agents that wait for a slot; commands", PurposeSlots},
	{PrefixStages + "<stage>/state", "how far the change of a stage is: its step and gate", "JSON", []Kind{KindOrchestrator}, "the orchestrator; commands", ""},
	{PrefixStages + "<stage>/stops", "which changes of a stage are stopped, and why", "JSON", []Kind{KindOrchestrator}, "the orchestrator; commands; agents check that it has not changed", ""},
	{PrefixRuns + "<run>/…", "a run: what is asked for, its members and each member's job", "JSON", []Kind{KindOrchestrator}, "the orchestrator; commands", ""},
	{PrefixRuns + "<run>/tails/<node>", "the end of what the run's last task printed on that node", "text", []Kind{KindOrchestrator}, "commands", ""},
	{PrefixActiveRuns + "<run>", "that a run is in progress", "text", []Kind{KindOrchestrator}, "the orchestrator; commands", ""},
	{PrefixRuns + ".ended/<run>", "when a run ended", "text", []Kind{KindOrchestrator}, "the orchestrator; commands", ""},
	{PrefixRuns + ".waits/<node>/<run>", "what the run's job on that node waits for", "JSON", []Kind{KindOrchestrator, KindAgent}, "commands in tasks", PurposeRuns},
	{PrefixRuns + ".schedules/…", "the due times of rules with a schedule", "JSON", []Kind{KindOrchestrator}, "the orchestrator; commands", ""},
	{KeyElection, "the lock of the election of leaders", "lock", []Kind{KindElector}, "electors", ""},
	{OrchestratorLock, "the lock of the orchestrator", "lock", []Kind{KindOrchestrator}, "orchestrators; commands", ""},
	{"orchestrate/…", "the ledger of grants, decisions until they are journalled, requests for a cycle, reports of cycles", "JSON", []Kind{KindOrchestrator}, "the orchestrator; commands", ""},
	{PrefixView + "…", "the last view of the cluster", "JSON", []Kind{KindOrchestrator}, "the orchestrator; commands", ""},
	{PrefixEvents + "…", "the journal of events, and how far each sink is", "JSON", []Kind{KindOrchestrator}, "the orchestrator; commands", ""},
	{PrefixHistory + "…", "finished rollouts", "JSON", []Kind{KindOrchestrator}, "commands", ""},
	{KeyProfileHistory, "the last changes of the profile, and what it had before each", "JSON", []Kind{KindProfile}, "commands", ""},
	{PrefixAudit + "…", "the last changes that commands made, and who made them", "JSON", nil, "the orchestrator; commands", ""},
}

// ErrLayout: the cluster's keys have the layout of another version of jorc.
var ErrLayout = errors.New("another layout of keys")

// ErrBadState: there is no such state.
var ErrBadState = errors.New("not a state")

// CheckVersion returns text.ErrName, with the character that is to blame, unless
// name can be that of a version: one segment of a key's path that a shell, a
// file and a URL leave as it is.
func CheckVersion(name string) error { return checkName("version", name) }

// CheckCategory is CheckVersion for the categories of states.
func CheckCategory(name string) error { return checkName("category", name) }

func checkName(kind, name string) error {
	err := text.CheckSegment(name)
	switch {
	case err != nil:
	case name[0] == '-':
		err = fmt.Errorf("%q %w: '-' at position 1 would make it look like a flag", name, text.ErrName)
	default:
		err = text.CheckCharacters(name, ".-_+~:@=,")
	}
	if err != nil {
		return fmt.Errorf("%s %w", kind, err)
	}
	return nil
}

// CheckNode returns text.ErrName unless name can be that of a node.
func CheckNode(name string) error {
	if err := text.CheckName(name); err != nil {
		return fmt.Errorf("node %w", err)
	}
	return nil
}

// WritableKeys returns the keys below a cluster's prefix that a kind of token may
// write by the table of keys; one that ends with a slash means all keys below
// it. With a node they are that node's keys only: a pattern in which something else,
// such as a version, is free before the node is left out, since Consul's
// prefixes cannot express it.
func WritableKeys(kind Kind, node string) []string {
	var keys []string
	for _, k := range Keys {
		if !slices.Contains(k.Writers, kind) {
			continue
		}
		pattern := k.Pattern
		if node != "" {
			if before, _, ofNode := strings.Cut(pattern, "<node>"); ofNode && fixed(before) != before {
				continue
			}
			pattern = strings.ReplaceAll(pattern, "<node>", node)
		}
		begin := fixed(pattern)
		covers := func(key string) bool {
			return key == begin || strings.HasSuffix(key, "/") && strings.HasPrefix(begin, key)
		}
		if !slices.ContainsFunc(keys, covers) {
			keys = append(keys, begin)
		}
	}
	return keys
}

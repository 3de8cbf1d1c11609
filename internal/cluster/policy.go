package cluster

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Policy is a policy of Consul's ACLs.
type Policy struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Rules       string `json:"rules"`
}

// Kinds of callers that Policies knows.
const (
	PolicyAgent        = "agent"
	PolicyOperator     = "operator"
	PolicyOrchestrator = "orchestrator"
)

// Policies returns the least that a cluster's callers need: the agent on node,
// an operator, and an orchestrator on node. An agent may write what is its own
// and what all members move together, but not the profile, nor other members'
// records; an operator everything of the cluster; an orchestrator what an agent
// may and the documents that it decides.
func (c *Cluster) Policies(node string) []Policy {
	policy := func(kind, what string, rules ...[]rule) Policy {
		segments := []string{kind, c.prefix, c.name}
		if kind != PolicyOperator {
			segments = append(segments, node)
		}
		return Policy{
			Name: policyName(segments...), Description: fmt.Sprintf("jorc: %s of cluster %q", what, c.name),
			Rules: policyText(slices.Concat(rules...)),
		}
	}
	return []Policy{
		policy(PolicyAgent, "the agent on node "+node, c.readRules(), c.agentRules(node)),
		policy(PolicyOperator, "an operator", c.readRules(), c.operatorRules()),
		policy(PolicyOrchestrator, "the orchestrator on node "+node, c.readRules(), c.agentRules(node), c.orchestratorRules()),
	}
}

// readRules let see the cluster and who serves what.
func (c *Cluster) readRules() []rule {
	return []rule{
		{"key_prefix", c.store.Path(""), "read"},
		{"node_prefix", "", "read"},
		{"service_prefix", "", "read"},
		{"agent_prefix", "", "read"},
	}
}

// agentRules let one node speak for itself. The indexes below running_version
// and status end with the node's name, which Consul's prefixes cannot say.
func (c *Cluster) agentRules(node string) []rule {
	return []rule{
		{"key", c.store.Path(MemberKey(node)), "write"},
		{"key", c.store.Path(PrefixReports + node), "write"},
		{"key", c.store.Path(KeyLeaders), "write"},
		{"key_prefix", c.store.Path("elect/"), "write"},
		{"key_prefix", c.store.Path("running_version/"), "write"},
		{"key_prefix", c.store.Path("status/"), "write"},
		{"key_prefix", c.store.Path("slots/"), "write"},
		{"key", c.store.Path(QueueKey(node)), "write"},
		{"session", node, "write"},
		{"node", node, "write"},
		{"service_prefix", "", "write"},
	}
}

func (c *Cluster) operatorRules() []rule {
	return []rule{
		{"key_prefix", c.store.Path(""), "write"},
		{"session_prefix", "", "write"},
	}
}

func (c *Cluster) orchestratorRules() []rule {
	return []rule{
		{"key", c.store.Path(KeyControl), "write"},
		{"key", c.store.Path(KeyRollout), "write"},
		{"key", c.store.Path("current_version"), "write"},
		{"key_prefix", c.store.Path("orchestrate/"), "write"},
		{"key_prefix", c.store.Path("runs/"), "write"},
		{"key_prefix", c.store.Path(PrefixHosts), "write"},
		{"key_prefix", c.store.Path("view/"), "write"},
		{"key_prefix", c.store.Path("events/"), "write"},
	}
}

// rule is one rule in Consul's language.
type rule struct{ resource, name, access string }

// policyText writes rules, of two for the same only the one that gives more.
func policyText(rules []rule) string {
	var lines []string
	for i, r := range rules {
		wider := slices.ContainsFunc(rules[i+1:], func(o rule) bool {
			return o.resource == r.resource && o.name == r.name && o.access == "write"
		})
		if !wider {
			lines = append(lines, fmt.Sprintf("%s %s { policy = %q }", r.resource, strconv.Quote(r.name), r.access))
		}
	}
	return strings.Join(lines, "\n")
}

// policyName joins segments to a name that Consul takes: letters, digits,
// dashes and underscores, at most 128 of them. Its end tells apart what would
// look alike.
func policyName(segments ...string) string {
	clean := func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '-'
	}
	name := "jorc"
	for _, s := range segments {
		if s = strings.Map(clean, s); s != "" {
			name += "-" + s
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(segments, "\x00")))
	return fmt.Sprintf("%s-%x", name[:min(len(name), 119)], sum[:4])
}

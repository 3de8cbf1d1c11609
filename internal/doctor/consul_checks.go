package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

// answers reports whether the agent's HTTP API answers at all, even if it reaches
// no server.
func (e *examination) answers() bool {
	if _, err := e.leader(); err == nil || !errors.Is(err, consul.ErrUnreachable) {
		return true
	}
	_, err := e.self()
	return err == nil || errors.Is(err, consul.ErrDenied) && !unknownToken(err)
}

// api checks that the agent answers and accepts the token.
func (e *examination) api(context.Context) []Finding {
	const name = "consul_http"
	address := e.Config.Consul.Address
	if !e.answers() {
		_, err := e.leader()
		return one(name, Fail, fmt.Sprintf("%s: %s", address, why(err)), remedyFor(err))
	}
	if _, err := e.self(); err != nil && (unknownToken(err) || !errors.Is(err, consul.ErrDenied)) {
		return one(name, Fail, fmt.Sprintf("%s answers, but: %s", address, why(err)), remedyFor(err))
	}
	return one(name, OK, address+" answers", "")
}

// unanswered is the finding of a check that needs Consul while Consul does not
// answer.
func unanswered(name string) []Finding {
	return one(name, Skip, "Consul does not answer", "")
}

// unknown is the finding of a check that needs facts about the agent which could
// not be read.
func unknown(name string, err error) []Finding {
	switch {
	case unknownToken(err):
		return one(name, Skip, "Consul does not take the token", "")
	case errors.Is(err, consul.ErrDenied):
		return one(name, Skip, "the token may not ask the agent", "give it agent:read")
	}
	return one(name, Skip, why(err), "")
}

// oldest is the first Consul version that reports when ACLs filtered an answer, on
// which jorc relies; newest is the last known major version.
const (
	oldestMajor, oldestMinor = 1, 11
	newestMajor              = 1
)

// version checks that jorc works with the agent's version.
func (e *examination) version(context.Context) []Finding {
	const name = "consul_version"
	if !e.answers() {
		return unanswered(name)
	}
	self, err := e.self()
	if err != nil {
		return unknown(name, err)
	}
	status, detail, remedy := classifyVersion(self.Config.Version)
	return one(name, status, detail, remedy)
}

func classifyVersion(version string) (s Status, detail, remedy string) {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return Warn, fmt.Sprintf("%q is not a version that jorc can read", version), "jorc works with Consul 1.11 and later"
	}
	switch {
	case major < oldestMajor, major == oldestMajor && minor < oldestMinor:
		return Fail, version + " does not report when ACLs filtered an answer", "update Consul to 1.11 or later"
	case major > newestMajor:
		return Warn, version + " is newer than the versions that jorc supports", "update jorc"
	}
	return OK, version, ""
}

// raft checks that the servers have a leader.
func (e *examination) raft(context.Context) []Finding {
	const name = "consul_leader"
	if !e.answers() {
		return unanswered(name)
	}
	leader, err := e.leader()
	if err == nil && leader == "" {
		err = errNoLeader
	}
	if unknownToken(err) {
		return unknown(name, err)
	}
	if err != nil {
		return one(name, Fail, why(err), remedyFor(err))
	}
	return one(name, OK, leader, "")
}

// name is the node's name: the configured one, or the local agent's.
func (e *examination) name() (string, error) {
	if e.Config.Node != "" {
		return e.Config.Node, nil
	}
	self, err := e.self()
	return self.Config.NodeName, err
}

// node checks that this node is in the catalog and that gossip reaches it.
func (e *examination) node(ctx context.Context) []Finding {
	const name = "node"
	if !e.answers() {
		return unanswered(name)
	}
	node, err := e.name()
	if err != nil {
		return unknown(name, err)
	}
	var filtered bool
	checks, err := bounded(ctx, e.Timeout, func(ctx context.Context) (consul.HealthChecks, error) {
		checks, meta, err := e.client.HealthNode(ctx, node, consul.Query{})
		filtered = meta.Filtered
		return checks, err
	})
	if err != nil {
		return one(name, Fail, fmt.Sprintf("the checks of %s: %s", node, why(err)), remedyFor(err))
	}
	status, detail, remedy := classifyNode(node, checks, filtered || len(checks) == 0 && !e.granted(ctx, consul.Right{Resource: "node", Access: "read", Segment: node}))
	return one(name, status, detail, remedy)
}

func classifyNode(node string, checks consul.HealthChecks, hidden bool) (s Status, detail, remedy string) {
	for _, c := range checks {
		switch {
		case c.CheckID == consul.NodeMaintenance && consul.StartedByJorc(c.Notes):
			return Warn, fmt.Sprintf("%s is in maintenance: %s", node, c.Notes), "jorc ends it when the host has converged: 'jorc update why' says what is missing"
		case c.CheckID == consul.NodeMaintenance:
			return Warn, fmt.Sprintf("%s is in maintenance: %s", node, c.Notes), "'consul maint -disable' ends it"
		case c.CheckID != consul.GossipCheck:
		case c.Status != consul.HealthPassing:
			return Fail, fmt.Sprintf("%s is registered, but its serfHealth is %s: %s", node, c.Status, firstLine(c.Output)), "let the other members reach this host's Serf port (8301 TCP and UDP)"
		default:
			return OK, node + " is registered and alive", ""
		}
	}
	if hidden {
		return Skip, "the token may not see node " + node, "give it node:read"
	}
	return Fail, node + " is not in the catalog, or has no serfHealth check", "start the Consul agent on this host, or set --node to its name in Consul"
}

// granted reports whether the token has a right; false after an error.
func (e *examination) granted(ctx context.Context, r consul.Right) bool {
	allowed, err := bounded(ctx, e.Timeout, func(ctx context.Context) ([]bool, error) { return e.client.Authorize(ctx, r) })
	return err == nil && allowed[0]
}

// clock compares this host's clock with those of the agent and of the leader.
func (e *examination) clock(ctx context.Context) []Finding {
	const name = "clock"
	if !e.answers() {
		return unanswered(name)
	}
	skew, err := e.skew(ctx, e.client)
	if err != nil {
		return unknown(name, err)
	}
	with := "the agent's"
	if leader, err := e.leaderSkew(ctx); err == nil {
		with = "the leader's"
		skew = leader
	}
	status, detail, remedy := classifySkew(skew, with)
	return one(name, status, detail, remedy)
}

// leaderSkew queries the leader itself, if its HTTP API is reachable, without a
// token.
func (e *examination) leaderSkew(ctx context.Context) (time.Duration, error) {
	leader, err := e.leader()
	if err != nil {
		return 0, err
	}
	conf, err := configOfLeader(e.Config.Consul, leader)
	if err != nil {
		return 0, err
	}
	client, err := consul.New(conf)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	return e.skew(ctx, client)
}

// skew returns how far this host's clock is ahead of the clock of the agent that
// client queries, whose answer is in whole seconds.
func (e *examination) skew(ctx context.Context, client *consul.Client) (time.Duration, error) {
	before := time.Now()
	date, err := bounded(ctx, e.Timeout, client.Date)
	if err != nil {
		return 0, err
	}
	middle := before.Add(time.Since(before) / 2)
	return middle.Sub(date.Add(time.Second / 2)), nil
}

// maxSkew includes half a second for the resolution of whole seconds.
const maxSkew = time.Second + time.Second/2

func classifySkew(ahead time.Duration, with string) (s Status, detail, remedy string) {
	if ahead.Abs() <= maxSkew {
		return OK, "agrees with " + with, ""
	}
	word := "ahead of"
	if ahead < 0 {
		word = "behind"
	}
	return Warn, fmt.Sprintf("about %v %s %s", ahead.Abs().Round(time.Second), word, with), "let chrony or systemd-timesyncd set the clocks of both"
}

func hostOf(address string) (string, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("address %q: %w", address, err)
	}
	return host, nil
}

package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/config"
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
// which jorc relies; tested the oldest that jorc's tests run with (tools/consul); newest
// is the last known major version.
const (
	oldestMajor, oldestMinor = 1, 11
	testedMajor, testedMinor = 1, 18
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
	remedy = fmt.Sprintf("update Consul to %d.%d or later", testedMajor, testedMinor)
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return Warn, fmt.Sprintf("%q is not a version that jorc can read", version), remedy
	}
	switch {
	case major < oldestMajor, major == oldestMajor && minor < oldestMinor:
		return Fail, version + " does not report when ACLs filtered an answer", remedy
	case major < testedMajor, major == testedMajor && minor < testedMinor:
		return Warn, version + " is older than the versions that jorc is tested with", remedy
	case major > newestMajor:
		return Warn, version + " is newer than the versions that jorc is tested with", "update jorc"
	}
	return OK, version, ""
}

// slowAnswer is from when on servers are slow: they answer within milliseconds.
const slowAnswer = 2 * time.Second

// raft checks that the servers have a leader, and answer soon.
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
	if e.took >= slowAnswer {
		return one(name, Warn, fmt.Sprintf("%s, but the servers are slow: the answer took %v", leader, e.took.Round(100*time.Millisecond)),
			"see the load of the servers, their disks, and the network to them: jorc continues, and everything takes longer")
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
			return Warn, fmt.Sprintf("%s is in maintenance: %s", node, c.Notes), "jorc ends it when the host has converged: 'jorc update why' lists what is missing"
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

// limits compares jorc's connections with Consul's limit per client.
func (e *examination) limits(context.Context) []Finding {
	const name = "connections"
	if !e.answers() {
		return unanswered(name)
	}
	self, err := e.self()
	if err != nil {
		return unknown(name, err)
	}
	most, ok := self.DebugConfig["HTTPMaxConnsPerClient"].(float64)
	if !ok {
		return one(name, Skip, "the agent does not report its limit of connections per client", "")
	}
	status, detail, remedy := classifyConnections(e.Config.Consul.MaxConnections, int(most))
	return one(name, status, detail, remedy)
}

func classifyConnections(wanted, most int) (s Status, detail, remedy string) {
	detail = fmt.Sprintf("jorc opens %d at most, Consul takes %d from one address (limits.http_max_conns_per_client)", wanted, most)
	remedy = fmt.Sprintf("set consul.max_connections to %d or less, or raise Consul's limit", most/2)
	switch {
	case most <= 0:
		return OK, fmt.Sprintf("jorc opens %d at most, Consul has no limit", wanted), ""
	case wanted > most:
		return Fail, detail, remedy
	case wanted > most*3/4:
		return Warn, detail + ": little is left for other programs of this host", remedy
	}
	return OK, detail, ""
}

// modes checks settings of the agent that often cause surprises.
func (e *examination) modes(context.Context) []Finding {
	const name = "consul_settings"
	if !e.answers() {
		return unanswered(name)
	}
	self, err := e.self()
	if err != nil {
		return unknown(name, err)
	}
	return classifySettings(name, self.DebugConfig)
}

func classifySettings(name string, settings map[string]any) []Finding {
	var found []Finding
	if settings["DevMode"] == true {
		found = append(found, Finding{name, Warn, "Consul runs in dev mode: its data is gone when it ends", "give it a data_dir, and leave out -dev"})
	}
	if settings["EnableRemoteScriptChecks"] == true {
		found = append(found, Finding{
			name, Warn, "enable_script_checks lets every token with service:write run commands on this host",
			"leave it off: jorc runs script checks itself",
		})
	}
	domain, _ := settings["DNSDomain"].(string)
	alternative, _ := settings["DNSAltDomain"].(string)
	if domain != "" && strings.Trim(domain, ".") != "consul" && strings.Trim(alternative, ".") != "consul" {
		found = append(found, Finding{
			name, Warn, fmt.Sprintf("Consul's DNS answers for %q, jorc asks for names below \"consul.\"", domain),
			`set alt_domain = "consul", or wait for full DNS names`,
		})
	}
	if len(found) == 0 {
		return one(name, OK, "no script checks and no dev mode", "")
	}
	return found
}

// configOfLeader returns settings to reach the leader's HTTP API without a token.
// It assumes that all agents use the same HTTP port.
func configOfLeader(c config.Consul, raft string) (config.Consul, error) {
	host, err := hostOf(raft)
	if err != nil {
		return c, err
	}
	scheme, address, ok := strings.Cut(c.Address, "://")
	if !ok {
		scheme, address = "http", c.Address
	}
	if scheme == "unix" {
		return c, fmt.Errorf("a socket has no port: %s", c.Address)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		port = "8500"
	}
	c.Address = scheme + "://" + net.JoinHostPort(host, port)
	c.Token, c.TokenFile = "", ""
	return c, nil
}

package doctor

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/jorc/jorc/internal/config"
)

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

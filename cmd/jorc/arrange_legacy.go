package main

import (
	"net"
	"slices"

	"github.com/urfave/cli/v2"
)

// legacyCategory marks the commands that bear the names existing host scripts
// use.
const legacyCategory = "names that existing host scripts use"

// legacyFlags stand in front of a legacy command: the address of the Consul
// agent, and a token of the old system that is accepted and ignored.
var legacyFlags = [...]string{"host", "port", "discovery_token"}

// isLegacy reports whether name may be a flag in front of a legacy command.
// Elsewhere --host means something else.
func (a *arranger) isLegacy(name string) bool {
	return len(a.path) == 0 && slices.Contains(legacyFlags[:], name)
}

// legacyFlag stores the value of a legacy flag, and returns how many of the
// arguments that follow were its value.
func (a *arranger) legacyFlag(name, value string, hasValue bool, following []string) (int, error) {
	taken := 0
	switch {
	case hasValue:
	case len(following) == 0 || following[0] == "--":
		return 0, a.usage("flag --" + name + " needs a value")
	default:
		value, taken = following[0], 1
	}
	if a.legacy == nil {
		a.legacy = map[string]string{}
	}
	a.legacy[name] = value
	return taken, nil
}

// legacyAddress turns --host and --port into the address of the Consul agent.
func (a *arranger) legacyAddress() error {
	if len(a.legacy) == 0 || a.help {
		return nil
	}
	if len(a.path) == 0 || !legacyCommand(a.path[0]) {
		name := ""
		for _, flag := range legacyFlags {
			if _, given := a.legacy[flag]; given {
				name = flag
				break
			}
		}
		path := a.path
		a.path = nil // where it stood
		defer func() { a.path = path }()
		return a.unknownFlag(name)
	}
	host, port := a.legacy["host"], a.legacy["port"]
	if host == "" && port == "" {
		return nil
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = "8500"
	}
	a.add(nil, "--http-addr="+net.JoinHostPort(host, port))
	return nil
}

func legacyCommand(c *cli.Command) bool { return c.Category == legacyCategory }

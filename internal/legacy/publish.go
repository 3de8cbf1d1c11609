package legacy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
)

// publishService registers the services that are named, or those of this host's configuration.
func (n names) publishService(c *cli.Context) error {
	var p Published
	var err error
	args := arguments(c)
	if len(args) > 0 {
		if p, err = ParsePublished(args); err != nil {
			return usage(c, err)
		}
	}
	t, err := n.Open(c, "")
	if err != nil {
		return err
	}
	services := t.Settings.Services
	if len(args) > 0 {
		if p.Host != "" {
			own, err := n.Node(c, t, "")
			if err != nil {
				return err
			}
			if own != p.Host {
				return fmt.Errorf("services are published on the host that has them: this is %s, not %s", own, p.Host)
			}
		}
		interfaces, err := Interfaces()
		if err != nil {
			return fmt.Errorf("find the interfaces: %w", err)
		}
		services = p.Definitions(interfaces)
	}
	for _, s := range services {
		// An agent that runs with the same configuration has registered its services.
		_, err := catalog.Publish(c.Context, t.Client, t.Settings.StateDir, s)
		if err != nil && (len(args) > 0 || !errors.Is(err, catalog.ErrConfigured)) {
			return err
		}
	}
	return nil
}

// Published is what publish_service is asked for.
type Published struct {
	Host      string // empty: this one
	addresses []taggedAddress
	services  []string
}

type taggedAddress struct {
	tag     string // empty: that of the interface that has it
	address netip.Addr
}

// ParsePublished reads [HOST] [INTERFACE=]ADDRESS… SERVICE…: the first argument
// is a host when an address follows it, the addresses end at the first other word.
func ParsePublished(args []string) (p Published, err error) {
	if len(args) > 1 && !isAddress(args[0]) && isAddress(args[1]) {
		p.Host, args = args[0], args[1:]
	}
	for len(args) > 0 && isAddress(args[0]) {
		p.addresses, args = append(p.addresses, parseAddress(args[0])), args[1:]
	}
	for _, s := range args {
		if s == "" || isAddress(s) {
			return p, fmt.Errorf("%q is not the name of a service", s)
		}
	}
	p.services = args
	switch {
	case len(p.addresses) == 0:
		return p, fmt.Errorf("missing ADDRESS")
	case len(p.services) == 0:
		return p, fmt.Errorf("missing SERVICE")
	}
	return p, nil
}

func isAddress(s string) bool { return parseAddress(s).address.IsValid() }

// parseAddress reads [INTERFACE=]ADDRESS; the address is invalid for any other text.
func parseAddress(s string) taggedAddress {
	tag, text, tagged := strings.Cut(s, "=")
	if !tagged {
		tag, text = "", s
	}
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" || tagged && tag == "" {
		return taggedAddress{}
	}
	return taggedAddress{tag, address.Unmap()}
}

// tagged gives each address a name of its own: the one it came with, that of
// its interface, or lan.
func tagged(addresses []taggedAddress, interfaces map[netip.Addr]string) map[string]config.Address {
	all := make(map[string]config.Address, len(addresses))
	for _, a := range addresses {
		name := a.tag
		if name == "" {
			name = interfaces[a.address]
		}
		if name == "" {
			name = "lan"
		}
		free := name
		for i := 2; ; i++ {
			if _, taken := all[free]; !taken {
				break
			}
			free = name + "_" + strconv.Itoa(i)
		}
		all[free] = config.Address{Host: a.address.String()}
	}
	return all
}

// Interfaces returns the names of this host's interfaces by their addresses.
func Interfaces() (map[netip.Addr]string, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	names := map[netip.Addr]string{}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				names[prefix.Addr().Unmap()] = i.Name
			}
		}
	}
	return names, nil
}

// Definitions returns the services to register, with the names of interfaces for addresses that have none.
func (p Published) Definitions(interfaces map[netip.Addr]string) []config.Service {
	all := make([]config.Service, 0, len(p.services))
	for _, name := range p.services {
		all = append(all, config.Service{Name: name, Address: p.addresses[0].address.String(), TaggedAddresses: tagged(p.addresses, interfaces)})
	}
	return all
}

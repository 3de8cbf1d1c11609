package main

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

func publishServiceCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "publish_service", Usage: "register services under addresses of this host", ArgsUsage: "[[HOST] [INTERFACE=]ADDRESS… SERVICE…]",
		Description: "Each SERVICE is registered with each ADDRESS as tagged address, under the name of the interface that has it. " +
			"Without arguments it registers the services of this host's configuration.",
		Action: env.publishServices,
	}
}

// published is what `publish_service` was asked for.
type published struct {
	host      string // empty: this one
	addresses []taggedAddress
	services  []string
}

type taggedAddress struct {
	tag     string // empty: that of the interface that has it
	address netip.Addr
}

// parsePublished reads [HOST] [INTERFACE=]ADDRESS… SERVICE…: the first argument
// is a host when an address follows it, the addresses end at the first other word.
func parsePublished(args []string) (p published, err error) {
	if len(args) > 1 && !isAddress(args[0]) && isAddress(args[1]) {
		p.host, args = args[0], args[1:]
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

// localInterfaces are the names of this host's interfaces by their addresses.
func localInterfaces() (map[netip.Addr]string, error) {
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

// publishConfigured registers the services of this host's configuration. An
// agent that runs with the same configuration has registered them already.
func (e *environment) publishConfigured(c *cli.Context) error {
	client, settings, err := e.consul(c)
	if err != nil {
		return err
	}
	defer client.Close()
	for _, s := range settings.Services {
		_, err := catalog.Publish(c.Context, client, settings.StateDir, s)
		if err != nil && !errors.Is(err, catalog.ErrConfigured) {
			return conflict(err)
		}
	}
	return nil
}

func (e *environment) publishServices(c *cli.Context) error {
	if len(arguments(c)) == 0 {
		return e.publishConfigured(c)
	}
	p, err := parsePublished(arguments(c))
	if err != nil {
		return usagef(c, "%v", err)
	}
	client, settings, err := e.consul(c)
	if err != nil {
		return err
	}
	defer client.Close()
	if p.host != "" {
		own, err := hostNamed(c, client, settings, "")
		if err != nil {
			return err
		}
		if own != p.host {
			return fmt.Errorf("services are published on the host that has them: this is %s, not %s", own, p.host)
		}
	}
	interfaces, err := localInterfaces()
	if err != nil {
		return fmt.Errorf("find the interfaces: %w", err)
	}
	for _, name := range p.services {
		_, err := catalog.Publish(c.Context, client, settings.StateDir, config.Service{
			Name: name, Address: p.addresses[0].address.String(), TaggedAddresses: tagged(p.addresses, interfaces),
		})
		if err != nil {
			return conflict(err)
		}
	}
	return nil
}

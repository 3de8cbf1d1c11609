package catalog

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/jorc/jorc/internal/config"
)

// Publication is what a host script asks `jorc publish_service` to register.
type Publication struct {
	Host      string // empty: this one
	Addresses []PublishedAddress
	Names     []string // of the services; each gets all addresses
}

// PublishedAddress is an address of this host.
type PublishedAddress struct {
	Tag     string // empty: the name of the interface that has the address
	Address netip.Addr
}

// ParsePublication reads [HOST] [INTERFACE=]ADDRESS… SERVICE…: the first argument is
// a host if an address follows it, the addresses end at the first other word.
func ParsePublication(args []string) (p Publication, err error) {
	if len(args) > 1 && !isAddress(args[0]) && isAddress(args[1]) {
		p.Host, args = args[0], args[1:]
	}
	for len(args) > 0 && isAddress(args[0]) {
		p.Addresses, args = append(p.Addresses, parseAddress(args[0])), args[1:]
	}
	for _, s := range args {
		if s == "" || isAddress(s) {
			return p, fmt.Errorf("%q is not the name of a service", s)
		}
	}
	p.Names = args
	switch {
	case len(p.Addresses) == 0:
		return p, fmt.Errorf("missing ADDRESS")
	case len(p.Names) == 0:
		return p, fmt.Errorf("missing SERVICE")
	}
	return p, nil
}

func isAddress(s string) bool { return parseAddress(s).Address.IsValid() }

// parseAddress reads [INTERFACE=]ADDRESS; the address is invalid for any other text.
func parseAddress(s string) PublishedAddress {
	tag, text, tagged := strings.Cut(s, "=")
	if !tagged {
		tag, text = "", s
	}
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" || tagged && tag == "" {
		return PublishedAddress{}
	}
	return PublishedAddress{tag, address.Unmap()}
}

// Services returns the services to register; interfaces names the interfaces of this
// host by their addresses.
func (p Publication) Services(interfaces map[netip.Addr]string) []config.Service {
	var all []config.Service
	for _, name := range p.Names {
		all = append(all, config.Service{Name: name, Address: p.Addresses[0].Address.String(), TaggedAddresses: p.tagged(interfaces)})
	}
	return all
}

// tagged gives each address a name of its own: its tag, or the name of its interface,
// or lan.
func (p Publication) tagged(interfaces map[netip.Addr]string) map[string]config.Address {
	all := make(map[string]config.Address, len(p.Addresses))
	for _, a := range p.Addresses {
		name := cmp.Or(a.Tag, interfaces[a.Address], "lan")
		free := name
		for i := 2; ; i++ {
			if _, taken := all[free]; !taken {
				break
			}
			free = name + "_" + strconv.Itoa(i)
		}
		all[free] = config.Address{Host: a.Address.String()}
	}
	return all
}

// LocalInterfaces returns the names of this host's interfaces by their addresses.
func LocalInterfaces() (map[netip.Addr]string, error) {
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

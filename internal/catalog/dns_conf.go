package catalog

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// plan says whom to ask, for which names in turn, and how long each try may
// take. The system's configuration is read anew each time, since DHCP and VPNs
// rewrite it. A name with a dot at its end is asked for as it is.
func (r *Resolver) plan(name string) (servers, names []string, timeout time.Duration, err error) {
	if _, ok := dns.IsDomainName(name); !ok || name == "" {
		return nil, nil, 0, &DNSError{Name: name, Type: "name", Class: ErrDNSName}
	}
	if r.addr != System {
		return []string{r.addr}, []string{canonical(name)}, r.timeout, nil
	}
	conf, err := dns.ClientConfigFromFile(r.resolvConf)
	if err != nil {
		return nil, nil, 0, &DNSError{Name: name, Type: "name", Class: ErrDNSUnreachable, Err: err}
	}
	if len(conf.Servers) == 0 {
		conf.Servers = []string{"127.0.0.1"} // resolv.conf(5)
	}
	for range max(1, min(conf.Attempts, 5)) {
		for _, s := range conf.Servers {
			servers = append(servers, net.JoinHostPort(s, r.port))
		}
	}
	if conf.Timeout > 0 {
		timeout = min(r.timeout, time.Duration(conf.Timeout)*time.Second)
	} else {
		timeout = r.timeout
	}
	for _, n := range conf.NameList(name) {
		if _, ok := dns.IsDomainName(n); ok {
			names = append(names, canonical(n))
		}
	}
	if len(names) == 0 {
		return nil, nil, 0, &DNSError{Name: name, Type: "name", Class: ErrDNSName, Err: fmt.Errorf("too long with the search list of %s", r.resolvConf)}
	}
	return servers, names, timeout, nil
}

func plainHost(s string) bool {
	_, ok := dns.IsDomainName(s)
	return ok && s != "" && !strings.ContainsAny(s, ":/ ")
}

// canonical writes a valid name as answers write it: an odd character has more
// than one spelling ("\032" is "\ ").
func canonical(name string) string {
	buf := make([]byte, 256)
	n, err := dns.PackDomainName(dns.Fqdn(name), buf, 0, nil, false)
	if err != nil {
		return dns.Fqdn(name)
	}
	same, _, err := dns.UnpackDomainName(buf[:n], 0)
	if err != nil {
		return dns.Fqdn(name)
	}
	return same
}

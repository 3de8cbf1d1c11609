package catalog

import (
	"testing"

	"github.com/miekg/dns"
)

// SystemPort sets the port of the servers in a test's resolv.conf.
func SystemPort(port string) ResolverOption { return func(r *Resolver) { r.port = port } }

// ResolvConf names the file that System reads instead of /etc/resolv.conf.
func ResolvConf(path string) ResolverOption { return func(r *Resolver) { r.resolvConf = path } }

// FuzzAnswer parses arbitrary answers.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		"web.service.consul. 0 IN SRV 1 1 80 n1.node.dc1.consul.",
		"web.service.consul. 0 IN CNAME web.service.consul.",
		"web.service.consul. 0 IN A 10.0.0.1",
		"web.service.consul. 0 IN AAAA fd00::1",
		"web.service.consul. 0 IN PTR n1.node.dc1.consul.",
		"web.service.consul. 0 IN SRV 0 0 0 .",
	} {
		rr, err := dns.NewRR(text)
		if err != nil {
			f.Fatal(err)
		}
		m := new(dns.Msg).SetQuestion("web.service.consul.", rr.Header().Rrtype)
		m.Response, m.Answer, m.Extra = true, []dns.RR{rr}, []dns.RR{rr}
		data, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, tcp := range []bool{true, false} {
			rep, err := unpack(data, tcp)
			if err != nil {
				continue
			}
			srv, err := parseSRV(question{"web.service.consul.", dns.TypeSRV}, rep)
			if (err == nil) != (len(srv.Instances) > 0) {
				t.Errorf("SRV: %d instances with error %v", len(srv.Instances), err)
			}
			for _, i := range srv.Instances {
				for _, a := range i.Addrs {
					if !a.IsValid() {
						t.Errorf("SRV: invalid address of %q", i.Target)
					}
				}
			}
			for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
				a, err := parseAddresses(question{"web.service.consul.", qtype}, rep)
				if (err == nil) != (len(a.Addrs) > 0) {
					t.Errorf("addresses: %d with error %v", len(a.Addrs), err)
				}
			}
			names, err := parsePTR(question{"web.service.consul.", dns.TypePTR}, rep)
			if (err == nil) != (len(names) > 0) {
				t.Errorf("PTR: %d names with error %v", len(names), err)
			}
		}
	})
}

package catalog_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/miekg/dns"

	"github.com/jorc/jorc/internal/catalog"
)

var sameAddr = cmpopts.EquateComparable(netip.Addr{})

func TestSRVAnswers(t *testing.T) {
	t.Parallel()
	a4, a6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	tests := []struct {
		name    string
		rcode   int
		records []string
		want    []catalog.SRVInstance
		err     error
	}{
		{
			name: "addresses of the additional section",
			records: []string{
				"web.service.consul. 0 IN SRV 1 2 80 n1.node.dc1.consul.", "web.service.consul. 0 IN SRV 1 1 81 0a000001.addr.dc1.consul.",
				"extra:N1.node.dc1.consul. 0 IN A 10.0.0.1", "extra:n1.node.dc1.consul. 0 IN AAAA fd00::1",
			},
			want: []catalog.SRVInstance{
				{Target: "n1.node.dc1.consul.", Port: 80, Priority: 1, Weight: 2, Addrs: []netip.Addr{a4, a6}, Node: "n1"},
				{Target: "0a000001.addr.dc1.consul.", Port: 81, Priority: 1, Weight: 1},
			},
		},
		{
			name: "through aliases",
			records: []string{
				"Web.service.consul. 0 IN CNAME web.example.", "web.example. 0 IN SRV 0 0 80 h.example.", "other.example. 0 IN SRV 0 0 1 h.example.",
				"extra:h.example. 0 IN CNAME g.example.", "extra:g.example. 0 IN A 10.0.0.1",
			},
			want: []catalog.SRVInstance{{Target: "h.example.", Port: 80, Addrs: []netip.Addr{a4}}},
		},
		{name: "decidedly not there", records: []string{"web.service.consul. 0 IN SRV 0 0 0 ."}, err: catalog.ErrNoData},
		{name: "aliases in a circle", records: []string{"web.service.consul. 0 IN CNAME b.", "b. 0 IN CNAME web.service.consul."}, err: catalog.ErrNoData},
		{name: "empty", err: catalog.ErrNoData},
		{name: "no name", rcode: dns.RcodeNameError, err: catalog.ErrNXDomain},
		{name: "failure", rcode: dns.RcodeServerFailure, err: catalog.ErrServFail},
		{name: "refusal", rcode: dns.RcodeRefused, err: catalog.ErrDNSRefused},
		{name: "another code", rcode: dns.RcodeNXRrset, err: catalog.ErrServFail},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serveDNS(t, says(t, tt.rcode, tt.records...))
			got, err := resolver(t, s.addr).SRV(t.Context(), "web.service.consul.")
			if !errors.Is(err, tt.err) {
				t.Fatalf("err = %v, want %v", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got.Instances, sameAddr); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if got.Cut {
				t.Error("a small answer counts as cut")
			}
			if n := s.udp.Load(); n != 0 {
				t.Errorf("%d questions over UDP, want all over TCP", n)
			}
		})
	}
}

func TestSRVOverUDPWhereTCPIsMissing(t *testing.T) {
	t.Parallel()
	s := serveUDP(t, says(t, 0, "web. 0 IN SRV 0 0 80 h."))
	got, err := resolver(t, s.addr).SRV(t.Context(), "web.")
	if err != nil || len(got.Instances) != 1 || got.Cut {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Consul truncates at 1,024 records or at 64 KB, without the TC bit.
func TestLongAnswersCountAsCut(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, target string
		n            int
		want         bool
	}{
		{"few", "h.", 400, false},
		{"many", "h.", 600, true},
		{"large", strings.Repeat(strings.Repeat("x", 60)+".", 3), 320, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var records []string
			for i := range tt.n {
				records = append(records, fmt.Sprintf("web. 0 IN SRV 0 0 %d %s", i+1, tt.target))
			}
			s := serveDNS(t, says(t, 0, records...))
			got, err := resolver(t, s.addr).SRV(t.Context(), "web.")
			if err != nil || len(got.Instances) != tt.n || got.Cut != tt.want {
				t.Errorf("%d instances, cut %v, %v; want %d, %v", len(got.Instances), got.Cut, err, tt.n, tt.want)
			}
		})
	}
}

func TestAddressesComeWholeOverTCP(t *testing.T) {
	t.Parallel()
	for _, tc := range []bool{true, false} {
		t.Run(fmt.Sprintf("TC bit %v", tc), func(t *testing.T) {
			t.Parallel()
			s := serveDNS(t, func(w dns.ResponseWriter, m *dns.Msg, tcp bool) {
				r := new(dns.Msg).SetReply(m)
				n := 300
				if !tcp {
					n, r.Truncated = 70, tc
				}
				for i := range n {
					hdr := dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}
					r.Answer = append(r.Answer, &dns.A{Hdr: hdr, A: net.IPv4(10, 0, byte(i>>8), byte(i))})
				}
				sendDNS(t, w, r)
			})
			got, err := resolver(t, s.addr).Addresses(t.Context(), "web.service.consul.", false)
			if err != nil || len(got.Addrs) != 300 || got.Cut {
				t.Errorf("%d addresses, cut %v, %v; want 300", len(got.Addrs), got.Cut, err)
			}
		})
	}
}

func TestAddressesSkipWhatWasNotAskedFor(t *testing.T) {
	t.Parallel()
	s := serveDNS(t, says(t, 0,
		"h.example. 0 IN CNAME g.example.", "g.example. 0 IN A 10.0.0.1", "g.example. 0 IN A 10.0.0.1",
		"g.example. 0 IN AAAA fd00::1", "x.example. 0 IN A 10.0.0.2"))
	r := resolver(t, s.addr)
	for v6, want := range map[bool]string{false: "10.0.0.1", true: "fd00::1"} {
		got, err := r.Addresses(t.Context(), "H.example", v6)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]netip.Addr{netip.MustParseAddr(want)}, got.Addrs, sameAddr); diff != "" {
			t.Errorf("v6 %v (-want +got)\n%s", v6, diff)
		}
	}
}

func TestNamesWithOddCharacters(t *testing.T) {
	t.Parallel()
	s := serveDNS(t, says(t, 0, `a\032b. 0 IN A 10.0.0.1`))
	if got, err := resolver(t, s.addr).Addresses(t.Context(), `A\032b.`, false); err != nil || len(got.Addrs) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestPTR(t *testing.T) {
	t.Parallel()
	s := serveDNS(t, says(t, 0, "1.0.0.10.in-addr.arpa. 0 IN PTR n1.node.dc1.consul."))
	got, err := resolver(t, s.addr).PTR(t.Context(), netip.MustParseAddr("::ffff:10.0.0.1"))
	if diff := cmp.Diff([]string{"n1.node.dc1.consul."}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

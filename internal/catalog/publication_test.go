package catalog_test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
)

func TestParsePublication(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, want string }{
		{"10.0.0.1 web", " 10.0.0.1 | web"},
		{"h1 10.0.0.1 web db", "h1 10.0.0.1 | web db"},
		{"eth0=10.0.0.1 eth1=fd00::1 web", " eth0=10.0.0.1 eth1=fd00::1 | web"},
		{"::ffff:10.0.0.1 web", " 10.0.0.1 | web"},
		{"web 10.0.0.1", `missing SERVICE`},
		{"10.0.0.1 web 10.0.0.2", `"10.0.0.2" is not the name of a service`},
		{"=10.0.0.1 web", `missing ADDRESS`},
		{"web db", `missing ADDRESS`},
	} {
		p, err := catalog.ParsePublication(strings.Fields(test.args))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = p.Host
			for _, a := range p.Addresses {
				tag := ""
				if a.Tag != "" {
					tag = a.Tag + "="
				}
				got += " " + tag + a.Address.String()
			}
			got += " | " + strings.Join(p.Names, " ")
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.args, got, test.want)
		}
	}
	a := netip.MustParseAddr
	p := catalog.Publication{
		Addresses: []catalog.PublishedAddress{{"", a("10.0.0.1")}, {"", a("10.0.0.2")}, {"", a("10.0.0.3")}, {"", a("10.0.0.4")}, {"vip", a("10.0.0.5")}},
		Names:     []string{"web"},
	}
	got := p.Services(map[netip.Addr]string{a("10.0.0.1"): "eth0", a("10.0.0.2"): "eth0"})
	want := []config.Service{{Name: "web", Address: "10.0.0.1", TaggedAddresses: map[string]config.Address{
		"eth0": {Host: "10.0.0.1"}, "eth0_2": {Host: "10.0.0.2"}, "lan": {Host: "10.0.0.3"}, "lan_2": {Host: "10.0.0.4"}, "vip": {Host: "10.0.0.5"},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// FuzzParsePublication: nothing of what is asked for is lost, and addresses are such.
func FuzzParsePublication(f *testing.F) {
	for _, seed := range []string{"10.0.0.1\nweb", "h\n10.0.0.1\nweb", "eth0=::1\nweb", "=\n", "fe80::1%eth0\nweb", "\n\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		p, err := catalog.ParsePublication(args)
		if err != nil {
			return
		}
		n := len(p.Addresses) + len(p.Names)
		if p.Host != "" || n < len(args) {
			n++
		}
		if n != len(args) || len(p.Addresses) == 0 || len(p.Names) == 0 {
			t.Errorf("%q: got %+v", args, p)
		}
		for tag, a := range p.Services(nil)[0].TaggedAddresses {
			if tag == "" || net.ParseIP(a.Host) == nil {
				t.Errorf("%q: tag %q, address %q", args, tag, a.Host)
			}
		}
		if slices.ContainsFunc(p.Names, func(s string) bool { return netip.Addr{} != addressIn(s) }) {
			t.Errorf("%q: got %+v", args, p)
		}
	})
}

// addressIn returns the address in [INTERFACE=]ADDRESS, or the zero value.
func addressIn(text string) netip.Addr {
	if tag, address, tagged := strings.Cut(text, "="); tagged && tag != "" {
		text = address
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}
	}
	return a
}

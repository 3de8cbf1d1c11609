package legacy_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/legacy"
)

func TestParsePublished(t *testing.T) {
	t.Parallel()
	a := netip.MustParseAddr
	interfaces := map[netip.Addr]string{a("10.0.0.1"): "eth0", a("10.0.0.2"): "eth0"}
	for _, test := range []struct {
		args, host, services string
		addresses            map[string]config.Address
		err                  string
	}{
		{args: "10.0.0.9 web", services: "web", addresses: map[string]config.Address{"lan": {Host: "10.0.0.9"}}},
		{args: "h1 10.0.0.1 web db", host: "h1", services: "web db", addresses: map[string]config.Address{"eth0": {Host: "10.0.0.1"}}},
		{
			args: "eth0=10.0.0.1 eth1=fd00::1 web", services: "web",
			addresses: map[string]config.Address{"eth0": {Host: "10.0.0.1"}, "eth1": {Host: "fd00::1"}},
		},
		{args: "::ffff:10.0.0.1 web", services: "web", addresses: map[string]config.Address{"eth0": {Host: "10.0.0.1"}}},
		{
			args: "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 vip=10.0.0.5 web", services: "web",
			addresses: map[string]config.Address{
				"eth0": {Host: "10.0.0.1"}, "eth0_2": {Host: "10.0.0.2"}, "lan": {Host: "10.0.0.3"}, "lan_2": {Host: "10.0.0.4"}, "vip": {Host: "10.0.0.5"},
			},
		},
		{args: "web 10.0.0.1", err: "missing SERVICE"},
		{args: "10.0.0.1 web 10.0.0.2", err: `"10.0.0.2" is not the name of a service`},
		{args: "=10.0.0.1 web", err: "missing ADDRESS"},
		{args: "web db", err: "missing ADDRESS"},
	} {
		p, err := legacy.ParsePublished(strings.Fields(test.args))
		if err != nil || test.err != "" {
			if err == nil || err.Error() != test.err {
				t.Errorf("%s: got %v, want %q", test.args, err, test.err)
			}
			continue
		}
		var names []string
		for _, s := range p.Definitions(interfaces) {
			names = append(names, s.Name)
			if diff := cmp.Diff(test.addresses, s.TaggedAddresses); diff != "" {
				t.Errorf("%s (-want +got)\n%s", test.args, diff)
			}
		}
		if got := strings.Join(names, " "); p.Host != test.host || got != test.services {
			t.Errorf("%s: got host %q, services %q", test.args, p.Host, got)
		}
	}
}

// FuzzPublished: nothing of what is asked for is lost, and addresses are such.
func FuzzPublished(f *testing.F) {
	for _, seed := range []string{"10.0.0.1\nweb", "h\n10.0.0.1\nweb", "eth0=::1\nweb", "=\n", "fe80::1%eth0\nweb", "\n\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		p, err := legacy.ParsePublished(args)
		if err != nil {
			return
		}
		services := p.Definitions(nil)
		if len(services) == 0 || len(services[0].TaggedAddresses) == 0 {
			t.Fatalf("%q: got %+v", args, services)
		}
		n := len(services) + len(services[0].TaggedAddresses)
		if p.Host != "" || n < len(args) {
			n++
		}
		if n != len(args) {
			t.Errorf("%q: got host %q, %+v", args, p.Host, services)
		}
		for tag, address := range services[0].TaggedAddresses {
			if tag == "" || net.ParseIP(address.Host) == nil {
				t.Errorf("%q: tag %q, address %q", args, tag, address.Host)
			}
		}
		for _, s := range services {
			if _, err := netip.ParseAddr(s.Name); err == nil {
				t.Errorf("%q: service %q is an address", args, s.Name)
			}
		}
	})
}

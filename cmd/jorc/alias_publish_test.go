package main

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
)

func TestPublishService(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	for _, test := range []struct {
		args string
		code int
	}{
		{"publish_service 127.0.0.1 10.200.0.7 web db", 0},
		{"publish_service 127.0.0.1 10.200.0.7 web db", 0},
		{"publish_service " + s.Node + " vip=10.200.0.9 dns", 0},
		{"publish_service elsewhere 10.200.0.9 dns", 1},
		{"publish_service web", 2},
		{"publish_service 10.200.0.9", 2},
		{"publish_service", 0}, // no services are configured
	} {
		if got := jorc(t, env, strings.Fields(test.args)...); got.code != test.code || got.stdout != "" || (got.stderr == "") != (test.code == 0) {
			t.Errorf("jorc %s: %+v, want exit %d", test.args, got, test.code)
		}
	}
	wantInCatalog(t, s, "web", "db", "dns")
	file := filepath.Join(t.TempDir(), "services.yaml")
	if got := jorc(t, env, "cache_services", "--file", file); got != (result{0, "", ""}) {
		t.Errorf("cache_services: %+v", got)
	}
	data, err := os.ReadFile(file)
	for _, line := range []string{"services::web::lo:\n  - 127.0.0.1\n", "services::db::lan:\n  - 10.200.0.7\n", "services::dns::vip:\n  - 10.200.0.9\n"} {
		if !strings.Contains(string(data), line) {
			t.Errorf("%q is missing in %s, %v", line, data, err)
		}
	}
}

func TestParsePublished(t *testing.T) {
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
		p, err := parsePublished(strings.Fields(test.args))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = p.host
			for _, a := range p.addresses {
				tag := ""
				if a.tag != "" {
					tag = a.tag + "="
				}
				got += " " + tag + a.address.String()
			}
			got += " | " + strings.Join(p.services, " ")
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.args, got, test.want)
		}
	}
	a := netip.MustParseAddr
	got := tagged([]taggedAddress{{"", a("10.0.0.1")}, {"", a("10.0.0.2")}, {"", a("10.0.0.3")}, {"", a("10.0.0.4")}, {"vip", a("10.0.0.5")}},
		map[netip.Addr]string{a("10.0.0.1"): "eth0", a("10.0.0.2"): "eth0"})
	want := map[string]config.Address{
		"eth0": {Host: "10.0.0.1"}, "eth0_2": {Host: "10.0.0.2"}, "lan": {Host: "10.0.0.3"}, "lan_2": {Host: "10.0.0.4"}, "vip": {Host: "10.0.0.5"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// FuzzPublished: nothing of what is asked for is lost, and addresses are such.
func FuzzPublished(f *testing.F) {
	for _, seed := range []string{"10.0.0.1\nweb", "h\n10.0.0.1\nweb", "eth0=::1\nweb", "=\n", "fe80::1%eth0\nweb", "\n\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		p, err := parsePublished(args)
		if err != nil {
			return
		}
		n := len(p.addresses) + len(p.services)
		if p.host != "" || n < len(args) {
			n++
		}
		if n != len(args) || len(p.addresses) == 0 || len(p.services) == 0 {
			t.Errorf("%q: got %+v", args, p)
		}
		for tag, a := range tagged(p.addresses, nil) {
			if tag == "" || net.ParseIP(a.Host) == nil {
				t.Errorf("%q: tag %q, address %q", args, tag, a.Host)
			}
		}
		if slices.ContainsFunc(p.services, isAddress) {
			t.Errorf("%q: got %+v", args, p)
		}
	})
}

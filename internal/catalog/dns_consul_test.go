package catalog_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

func publishDNS(t *testing.T, s *consultest.Server, services ...*consul.ServiceRegistration) {
	t.Helper()
	for _, r := range services {
		if err := s.Client().RegisterService(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConsulDNS(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	r := resolver(t, s.DNSAddr)
	if _, err := r.SRV(t.Context(), "web.service.consul."); !errors.Is(err, catalog.ErrNXDomain) {
		t.Errorf("nobody serves web: %v, want %v", err, catalog.ErrNXDomain)
	}
	publishDNS(t, s,
		&consul.ServiceRegistration{ID: "web-1", Name: "web", Port: 81, Address: "10.0.0.1", Tags: []string{"v1.2"}},
		&consul.ServiceRegistration{ID: "web-2", Name: "web", Port: 82},
		&consul.ServiceRegistration{ID: "web-3", Name: "web", Port: 83, Address: "web.example.com"},
		&consul.ServiceRegistration{ID: "six", Name: "six", Port: 1, Address: "fd00::1"},
	)
	got, err := r.SRV(t.Context(), "web.service.dc1.consul.")
	if err != nil || len(got.Instances) != 3 {
		t.Fatalf("%+v, %v; want 3 instances", got, err)
	}
	for _, i := range got.Instances {
		text := fmt.Sprint(i.Addrs, " ", i.Node)
		want := map[uint16]string{81: "[10.0.0.1] ", 82: "[" + s.IP + "] " + s.Node, 83: "[] "}[i.Port]
		if text != want {
			t.Errorf("port %d: %s, want %s", i.Port, text, want)
		}
	}
	if got, err := r.SRV(t.Context(), "v1.2.web.service.consul."); err != nil || len(got.Instances) != 1 {
		t.Errorf("by a tag with a dot: %+v, %v", got, err)
	}
	if _, err := r.Addresses(t.Context(), "six.service.consul.", false); !errors.Is(err, catalog.ErrNoData) {
		t.Errorf("A of an IPv6 service: %v, want %v", err, catalog.ErrNoData)
	}
	if got, err := r.Addresses(t.Context(), "six.service.consul.", true); err != nil || len(got.Addrs) != 1 {
		t.Errorf("AAAA of an IPv6 service: %v, %v", got, err)
	}
	if _, err := r.SRV(t.Context(), "web.service.nowhere.consul."); err == nil {
		t.Error("an unknown datacenter answers")
	}
	if _, err := r.SRV(t.Context(), "web.example.com."); !errors.Is(err, catalog.ErrDNSRefused) {
		t.Errorf("a name outside Consul: %v, want %v", err, catalog.ErrDNSRefused)
	}
}

package catalog_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/jorc/jorc/internal/catalog"
)

func TestOddServers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		h    handler
		err  error
	}{
		{"answers another question", func(w dns.ResponseWriter, m *dns.Msg, _ bool) {
			r := new(dns.Msg).SetReply(m)
			r.Question[0].Name = "evil."
			_ = w.WriteMsg(r) // the resolver closes the connection
		}, catalog.ErrDNSMalformed},
		{"sends rubbish", func(w dns.ResponseWriter, _ *dns.Msg, _ bool) {
			_, _ = w.Write([]byte("not a DNS message at all"))
		}, catalog.ErrDNSMalformed},
		{"sends a stub", func(w dns.ResponseWriter, _ *dns.Msg, _ bool) { _, _ = w.Write([]byte{1}) }, catalog.ErrDNSMalformed},
		{"hangs up", func(w dns.ResponseWriter, _ *dns.Msg, _ bool) { _ = w.Close() }, catalog.ErrDNSMalformed},
		{"says nothing", func(dns.ResponseWriter, *dns.Msg, bool) {}, catalog.ErrDNSTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serveDNS(t, tt.h)
			r := resolver(t, s.addr, catalog.QueryTimeout(300*time.Millisecond))
			if _, err := r.SRV(t.Context(), "web."); !errors.Is(err, tt.err) {
				t.Errorf("err = %v, want %v", err, tt.err)
			}
		})
	}
}

func TestStrayDatagramsAreSkipped(t *testing.T) {
	t.Parallel()
	s := serveDNS(t, func(w dns.ResponseWriter, m *dns.Msg, _ bool) {
		for _, forge := range []func(*dns.Msg){
			func(r *dns.Msg) { r.Id++ },
			func(r *dns.Msg) { r.Question[0].Name = "evil." },
			func(r *dns.Msg) { r.Response = false },
			func(r *dns.Msg) {
				r.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "h.", Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(10, 0, 0, 1)}}
			},
		} {
			r := new(dns.Msg).SetReply(m)
			forge(r)
			sendDNS(t, w, r)
		}
	})
	got, err := resolver(t, s.addr).Addresses(t.Context(), "h.", false)
	if err != nil || len(got.Addrs) != 1 {
		t.Errorf("got %v, %v; want the true answer", got, err)
	}
}

func TestServersWithoutEDNS(t *testing.T) {
	t.Parallel()
	plain := says(t, 0, "h. 0 IN A 10.0.0.1")
	s := serveDNS(t, func(w dns.ResponseWriter, m *dns.Msg, tcp bool) {
		if m.IsEdns0() != nil {
			sendDNS(t, w, &dns.Msg{MsgHdr: dns.MsgHdr{Id: m.Id, Response: true, Rcode: dns.RcodeFormatError}})
			return
		}
		plain(w, m, tcp)
	})
	if _, err := resolver(t, s.addr).Addresses(t.Context(), "h.", false); err != nil {
		t.Error(err)
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	r := resolver(t, l.Addr().String())
	if _, err := r.SRV(t.Context(), "web."); !errors.Is(err, catalog.ErrDNSUnreachable) {
		t.Errorf("SRV: %v, want %v", err, catalog.ErrDNSUnreachable)
	}
	if _, err := r.Addresses(t.Context(), "web.", false); !errors.Is(err, catalog.ErrDNSUnreachable) {
		t.Errorf("A: %v, want %v", err, catalog.ErrDNSUnreachable)
	}
}

func TestContextEndsAQuestion(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := serveDNS(t, func(dns.ResponseWriter, *dns.Msg, bool) { cancel() })
	r := resolver(t, s.addr, catalog.QueryTimeout(time.Hour))
	if _, err := r.SRV(ctx, "web."); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want %v", err, context.Canceled)
	}
}

func TestBadNames(t *testing.T) {
	t.Parallel()
	r := resolver(t, "127.0.0.1:1")
	for _, name := range []string{"", "a..b.", strings.Repeat("x", 64) + ".", strings.Repeat("x.", 200)} {
		if _, err := r.SRV(t.Context(), name); !errors.Is(err, catalog.ErrDNSName) {
			t.Errorf("%q: %v, want %v", name, err, catalog.ErrDNSName)
		}
	}
}

func TestNewResolverAddresses(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"system": "system", "127.0.0.1:8600": "127.0.0.1:8600", "10.0.0.1": "10.0.0.1:53", "::1": "[::1]:53", "[::1]:8600": "[::1]:8600",
		"ns.example": "ns.example:53", ":8600": "127.0.0.1:8600", "http://x": "", "": "", "a:b:c": "",
	} {
		r, err := catalog.NewResolver(addr)
		if want == "" {
			if err == nil {
				t.Errorf("%q is taken as %v", addr, r)
			}
		} else if err != nil || r.String() != want {
			t.Errorf("%q = %v, %v; want %v", addr, r, err, want)
		}
	}
}

func TestSystemResolvers(t *testing.T) {
	t.Parallel()
	records := says(t, 0, "h.corp.example. 0 IN A 10.0.0.1")
	s := serveDNSAt(t, "127.77.0.53", func(w dns.ResponseWriter, m *dns.Msg, tcp bool) {
		if m.Question[0].Name == "h.corp.example." {
			records(w, m, tcp)
			return
		}
		sendDNS(t, w, new(dns.Msg).SetRcode(m, dns.RcodeNameError))
	})
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	text := "nameserver 127.77.0.54\nnameserver 127.77.0.53\nsearch other.example corp.example\noptions ndots:1 timeout:1 attempts:2\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	r := resolver(t, catalog.System, catalog.ResolvConf(conf), catalog.SystemPort(port))
	got, err := r.Addresses(t.Context(), "h", false)
	if err != nil || len(got.Addrs) != 1 {
		t.Errorf("with the search list: %v, %v", got, err)
	}
	if _, err := r.Addresses(t.Context(), "h.", false); !errors.Is(err, catalog.ErrNXDomain) {
		t.Errorf("a name with a dot at its end: %v, want %v", err, catalog.ErrNXDomain)
	}
}

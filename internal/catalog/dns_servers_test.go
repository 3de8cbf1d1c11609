package catalog_test

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/jorc/jorc/internal/catalog"
)

// dnsServer is a DNS server in this process, for answers that a real Consul
// gives only rarely.
type dnsServer struct {
	addr     string
	udp, tcp atomic.Int64 // questions seen
}

type handler = func(w dns.ResponseWriter, m *dns.Msg, tcp bool)

func serveDNS(t *testing.T, h handler) *dnsServer {
	t.Helper()
	return serveDNSAt(t, "127.0.0.1", h)
}

func serveDNSAt(t *testing.T, ip string, h handler) *dnsServer {
	t.Helper()
	l, err := net.Listen("tcp", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenPacket("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := &dnsServer{addr: l.Addr().String()}
	runDNS(t, &dns.Server{Listener: l, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
		s.tcp.Add(1)
		h(w, m, true)
	})})
	runDNS(t, &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
		s.udp.Add(1)
		h(w, m, false)
	})})
	return s
}

// serveUDP is serveDNS without a listener on TCP.
func serveUDP(t *testing.T, h handler) *dnsServer {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dnsServer{addr: pc.LocalAddr().String()}
	runDNS(t, &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
		s.udp.Add(1)
		h(w, m, false)
	})})
	return s
}

func runDNS(t *testing.T, s *dns.Server) {
	t.Helper()
	started, done := make(chan struct{}), make(chan struct{})
	s.NotifyStartedFunc = func() { close(started) }
	go func() {
		defer close(done)
		if err := s.ActivateAndServe(); err != nil {
			t.Errorf("DNS server: %v", err)
		}
	}()
	<-started
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Errorf("shut down the DNS server: %v", err)
		}
		<-done
	})
}

// says returns a handler that answers with the given records; "extra:" precedes
// records of the additional section.
func says(t *testing.T, rcode int, records ...string) handler {
	t.Helper()
	var answer, extra []dns.RR
	for _, r := range records {
		text, additional := strings.CutPrefix(r, "extra:")
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		if additional {
			extra = append(extra, rr)
		} else {
			answer = append(answer, rr)
		}
	}
	return func(w dns.ResponseWriter, m *dns.Msg, _ bool) {
		r := new(dns.Msg).SetRcode(m, rcode)
		r.Answer, r.Extra = answer, extra
		sendDNS(t, w, r)
	}
}

func sendDNS(t *testing.T, w dns.ResponseWriter, r *dns.Msg) {
	r.Compress = true
	if err := w.WriteMsg(r); err != nil {
		t.Errorf("answer: %v", err)
	}
}

func resolver(t *testing.T, addr string, opts ...catalog.ResolverOption) *catalog.Resolver {
	t.Helper()
	r, err := catalog.NewResolver(addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

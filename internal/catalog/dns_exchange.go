package catalog

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

// reply is what a server sent.
type reply struct {
	msg *dns.Msg
	// size in bytes on the wire, which is where servers cut.
	size int
	tcp  bool
}

// exchange asks one server once: over UDP, and over TCP when the answer was or
// may have been cut; SRV over TCP first.
func (r *Resolver) exchange(ctx context.Context, server string, timeout time.Duration, q question) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if q.qtype == dns.TypeSRV {
		rep, err := r.roundTrip(ctx, "tcp", server, q)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return rep, err
		}
		return r.roundTrip(ctx, "udp", server, q)
	}
	rep, err := r.roundTrip(ctx, "udp", server, q)
	if err != nil || !rep.msg.Truncated && rep.size < mostUDP {
		return rep, err
	}
	whole, err := r.roundTrip(ctx, "tcp", server, q)
	if err != nil && !errors.Is(err, ErrDNSMalformed) {
		return rep, nil //nolint:nilerr // the cut answer is better than none, and says that it is cut
	}
	return whole, err
}

// roundTrip sends one question and reads its answer. A server too old for
// EDNS0 is asked again without.
func (r *Resolver) roundTrip(ctx context.Context, network, server string, q question) (reply, error) {
	rep, err := r.send(ctx, network, server, q, true)
	if err != nil {
		return reply{}, err
	}
	if rep.msg.Rcode == dns.RcodeFormatError || rep.msg.Rcode == dns.RcodeNotImplemented {
		return r.send(ctx, network, server, q, false)
	}
	return rep, nil
}

func (r *Resolver) send(ctx context.Context, network, server string, q question, edns bool) (reply, error) {
	conn, err := r.dialer.DialContext(ctx, network, server)
	if err != nil {
		return reply{}, err
	}
	defer conn.Close()
	// The connection's deadline carries the end of the context, whatever ended it.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	m := new(dns.Msg).SetQuestion(q.name, q.qtype)
	if edns {
		m.SetEdns0(udpBuffer, false)
	}
	co := &dns.Conn{Conn: conn, UDPSize: dns.MaxMsgSize - 1}
	if err := co.WriteMsg(m); err != nil {
		return reply{}, ended(ctx, err)
	}
	for {
		rep, err := receive(co, network == "tcp")
		if err != nil {
			return reply{}, ended(ctx, err)
		}
		if rep.answers(m) {
			return rep, nil
		}
		if network == "tcp" {
			return reply{}, malformed("it answers another question")
		}
		// A stray or forged datagram: the true one may still come.
	}
}

func receive(co *dns.Conn, tcp bool) (reply, error) {
	data, err := co.ReadMsgHeader(nil)
	switch {
	case errors.Is(err, dns.ErrShortRead):
		return reply{}, malformed("too short")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return reply{}, malformed("the connection was closed in the middle")
	case err != nil:
		return reply{}, err
	}
	return unpack(data, tcp)
}

func unpack(data []byte, tcp bool) (reply, error) {
	m := new(dns.Msg)
	if err := m.Unpack(data); err != nil && !m.Truncated {
		return reply{}, malformed("%w", err)
	}
	return reply{msg: m, size: len(data), tcp: tcp}, nil
}

// answers tells whether rep belongs to the question in m. Servers that report
// a format error may leave the question out.
func (rep reply) answers(m *dns.Msg) bool {
	if !rep.msg.Response || rep.msg.Id != m.Id {
		return false
	}
	if len(rep.msg.Question) == 0 {
		return rep.msg.Rcode != dns.RcodeSuccess
	}
	got, want := rep.msg.Question[0], m.Question[0]
	return got.Qtype == want.Qtype && got.Qclass == want.Qclass && strings.EqualFold(got.Name, want.Name)
}

// ended returns the context's error when that is why the exchange failed.
func ended(ctx context.Context, err error) error {
	var timeout net.Error
	if ctx.Err() != nil && errors.As(err, &timeout) && timeout.Timeout() {
		return ctx.Err()
	}
	return err
}

package main

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// dnsProxy passes DNS queries on, over UDP and TCP, and counts them.
type dnsProxy struct {
	address string
	target  string
	udp     net.PacketConn
	tcp     net.Listener

	mu    sync.Mutex
	asked []time.Time
}

// dnsPatience bounds the wait for an answer.
const dnsPatience = 5 * time.Second

func newDNSProxy(target string) (*dnsProxy, error) {
	ip, err := freeIP()
	if err != nil {
		return nil, err
	}
	p := &dnsProxy{address: ip + ":8600", target: target}
	if p.udp, err = net.ListenPacket("udp", p.address); err != nil {
		return nil, err
	}
	if p.tcp, err = net.Listen("tcp", p.address); err != nil {
		_ = p.udp.Close()
		return nil, err
	}
	go p.serveUDP()
	go p.serveTCP()
	return p, nil
}

func (p *dnsProxy) count() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, time.Now())
}

// rate is the number of queries per second since a time.
func (p *dnsProxy) rate(since time.Time) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.asked, func(t time.Time) bool { return t.After(since) })
	if i < 0 || i == len(p.asked)-1 {
		return 0
	}
	span := p.asked[len(p.asked)-1].Sub(p.asked[i])
	return float64(len(p.asked)-1-i) / span.Seconds()
}

func (p *dnsProxy) close() {
	_ = p.udp.Close() // queries no longer get an answer
	_ = p.tcp.Close()
}

func (p *dnsProxy) serveUDP() {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := p.udp.ReadFrom(buf)
		if err != nil {
			return
		}
		p.count()
		question := append([]byte(nil), buf[:n]...)
		go p.exchange(question, from)
	}
}

// exchange forwards one datagram. After an error the client gets no answer, as with
// DNS itself.
func (p *dnsProxy) exchange(question []byte, from net.Addr) {
	conn, err := net.DialTimeout("udp", p.target, dnsPatience)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(dnsPatience))
	if _, err := conn.Write(question); err != nil {
		return
	}
	buf := make([]byte, 1<<16)
	if n, err := conn.Read(buf); err == nil {
		_, _ = p.udp.WriteTo(buf[:n], from)
	}
}

func (p *dnsProxy) serveTCP() {
	for {
		conn, err := p.tcp.Accept()
		if err != nil {
			return
		}
		go p.pass(conn)
	}
}

// pass copies both ways; messages are preceded by their length.
func (p *dnsProxy) pass(client net.Conn) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", p.target, dnsPatience)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server) // until one of them closes
		_ = client.Close()
	}()
	for {
		message := make([]byte, 2, 512)
		if _, err := io.ReadFull(client, message); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(message))
		message = append(message, make([]byte, n)...)
		if _, err := io.ReadFull(client, message[2:]); err != nil {
			return
		}
		p.count()
		if _, err := server.Write(message); err != nil {
			return
		}
	}
}

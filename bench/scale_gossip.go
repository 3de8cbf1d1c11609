package main

import (
	"bytes"
	"compress/lzw"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// gossip simulates the Consul clients of a fleet: one socket answers the server's
// pings to all of them. Without it the server would deregister them within a
// minute, as it does with every node that has the check serfHealth and does not
// gossip. It implements the necessary part of version 2 of memberlist's protocol.
type gossip struct {
	udp    *net.UDPConn
	tcp    net.Listener
	server string // where Consul gossips
	size   int

	mu          sync.Mutex
	incarnation uint32
	doubted     bool // the server suspected a member
	running     sync.WaitGroup
	stop        context.CancelFunc
}

// Messages of memberlist.
const (
	msgPing         = 0
	msgIndirectPing = 1
	msgAck          = 2
	msgSuspect      = 3
	msgDead         = 5
	msgPushPull     = 6
	msgCompound     = 7
	msgCompress     = 9
)

// startGossip makes members 0 to size-1 join the server's gossip pool.
func startGossip(ctx context.Context, server string, size int) (*gossip, error) {
	ip, err := freeIP()
	if err != nil {
		return nil, err
	}
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(ip), Port: 8301})
	if err != nil {
		return nil, err
	}
	tcp, err := net.Listen("tcp4", udp.LocalAddr().String())
	if err != nil {
		udp.Close()
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	g := &gossip{udp: udp, tcp: tcp, server: server, size: size, stop: stop}
	g.running.Go(g.answer)
	g.running.Go(g.accept)
	g.running.Go(func() { g.refute(ctx) })
	if err := g.push(ctx); err != nil {
		g.close()
		return nil, fmt.Errorf("join the gossip at %s: %w", server, err)
	}
	return g, nil
}

func (g *gossip) close() {
	g.stop()
	g.udp.Close()
	g.tcp.Close()
	g.running.Wait()
}

// answer acknowledges pings until the socket is closed.
func (g *gossip) answer() {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := g.udp.ReadFromUDP(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			g.packet(buf[:n], from)
		}
	}
}

func (g *gossip) packet(p []byte, from *net.UDPAddr) {
	if len(p) < 2 {
		return
	}
	switch p[0] {
	case msgPing, msgIndirectPing:
		if seq, ok := number32(p, "SeqNo"); ok {
			ack := packMap([]byte{msgAck}, 2)
			ack = packUint(packText(ack, "SeqNo"), uint64(seq))
			ack = append(packText(ack, "Payload"), 0xc0)
			_, _ = g.udp.WriteToUDP(ack, from) // the server repeats a ping whose answer is lost
		}
	case msgSuspect, msgDead:
		g.mu.Lock()
		g.doubted = true
		g.mu.Unlock()
	case msgCompound:
		count, lengths := int(p[1]), p[2:]
		if len(lengths) < 2*count {
			return
		}
		rest := lengths[2*count:]
		for i := range count {
			n := int(binary.BigEndian.Uint16(lengths[2*i:]))
			if n > len(rest) {
				return
			}
			g.packet(rest[:n], from)
			rest = rest[n:]
		}
	case msgCompress:
		if plain, ok := expand(p[1:]); ok {
			g.packet(plain, from)
		}
	}
}

// expand undoes the compression of a message: {Algo, Buf}.
func expand(p []byte) ([]byte, bool) {
	at := bytes.Index(p, []byte("Buf"))
	if at < 0 || at+4 > len(p) {
		return nil, false
	}
	p = p[at+3:]
	switch head := p[0]; {
	case head >= 0xa0 && head <= 0xbf:
		p = p[1:]
	case head == 0xd9 || head == 0xc4:
		p = p[min(2, len(p)):]
	case head == 0xda || head == 0xc5:
		p = p[min(3, len(p)):]
	}
	plain, err := io.ReadAll(lzw.NewReader(bytes.NewReader(p), lzw.LSB, 8))
	return plain, len(plain) > 0 && (err == nil || errors.Is(err, io.ErrUnexpectedEOF))
}

// accept closes the streams that the server opens for push/pull: it knows all
// members already.
func (g *gossip) accept() {
	for {
		conn, err := g.tcp.Accept()
		if err != nil {
			return
		}
		conn.Close()
	}
}

// refute reports all members alive when the server suspects one.
func (g *gossip) refute(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		g.mu.Lock()
		doubted := g.doubted
		g.doubted = false
		g.mu.Unlock()
		if doubted {
			_ = g.push(ctx) // the next suspicion tries again
		}
	}
}

// push reports all members alive.
func (g *gossip) push(ctx context.Context) error {
	g.mu.Lock()
	g.incarnation++
	incarnation := g.incarnation
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", g.server)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(g.state(incarnation)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn) // the server's own state; then it takes ours in
	return err
}

// state is a push/pull message.
func (g *gossip) state(incarnation uint32) []byte {
	at := g.udp.LocalAddr().(*net.UDPAddr)
	p := packMap([]byte{msgPushPull}, 3)
	p = packUint(packText(p, "Nodes"), uint64(g.size))
	p = packUint(packText(p, "UserStateLen"), 0)
	p = append(packText(p, "Join"), 0xc3)
	for i := range g.size {
		p = packMap(p, 7)
		p = packText(packText(p, "Name"), nodeName(i))
		p = packText(packText(p, "Addr"), string(at.IP.To4()))
		p = packUint(packText(p, "Port"), uint64(at.Port))
		p = packText(packText(p, "Meta"), string(memberTags(i)))
		p = packUint(packText(p, "Incarnation"), uint64(incarnation))
		p = packUint(packText(p, "State"), 0)
		p = packText(packText(p, "Vsn"), "\x01\x02\x02\x02\x05\x04")
	}
	return p
}

// memberTags returns the serf tags of a Consul client.
func memberTags(i int) []byte {
	tags := [][2]string{
		{"role", "node"},
		{"dc", "dc1"},
		{"segment", ""},
		{"id", fmt.Sprintf("00000000-0000-4000-8000-%012x", i)},
		{"vsn", "2"},
		{"vsn_min", "2"},
		{"vsn_max", "3"},
		{"build", "1.20.1:00000000"},
	}
	p := packMap([]byte{0xff}, len(tags))
	for _, tag := range tags {
		p = packText(packText(p, tag[0]), tag[1])
	}
	return p
}

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
	udp  *net.UDPConn
	tcp  net.Listener
	size int

	running sync.WaitGroup
}

// Messages of memberlist.
const (
	msgPing         = 0
	msgIndirectPing = 1
	msgAck          = 2
	msgSuspect      = 3
	msgAlive        = 4
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
	g := &gossip{udp: udp, tcp: tcp, size: size}
	g.running.Go(g.answer)
	g.running.Go(g.accept)
	if err := g.join(ctx, server); err != nil {
		g.close()
		return nil, fmt.Errorf("join the gossip at %s: %w", server, err)
	}
	return g, nil
}

func (g *gossip) close() {
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
		g.refute(p, from)
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

// refute answers a doubt about a member as the member itself would: it lives, in an
// incarnation after the one that is doubted.
func (g *gossip) refute(doubt []byte, from *net.UDPAddr) {
	var i int
	node, ok := text(doubt, "Node")
	if _, err := fmt.Sscanf(node, "node-%d", &i); err != nil || !ok || i >= g.size {
		return // a Consul agent, which speaks for itself
	}
	incarnation, ok := number32(doubt, "Incarnation")
	if !ok {
		return
	}
	alive := g.member(packMap([]byte{msgAlive}, 6), "Node", i, incarnation+1)
	_, _ = g.udp.WriteToUDP(alive, from) // who doubts says so several times
}

// join reports all members alive to server.
func (g *gossip) join(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", server)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(g.state()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn) // the server's own state; then it takes ours in
	return err
}

// state is a push/pull message: all members live, in their first incarnation.
func (g *gossip) state() []byte {
	p := packMap([]byte{msgPushPull}, 3)
	p = packUint(packText(p, "Nodes"), uint64(g.size))
	p = packUint(packText(p, "UserStateLen"), 0)
	p = append(packText(p, "Join"), 0xc3)
	for i := range g.size {
		p = g.member(packMap(p, 7), "Name", i, 1)
		p = packUint(packText(p, "State"), 0)
	}
	return p
}

// member appends the six fields that tell of member i; name is that of the field with
// its name.
func (g *gossip) member(p []byte, name string, i int, incarnation uint32) []byte {
	at := g.udp.LocalAddr().(*net.UDPAddr)
	p = packText(packText(p, name), nodeName(i))
	p = packText(packText(p, "Addr"), string(at.IP.To4()))
	p = packUint(packText(p, "Port"), uint64(at.Port))
	p = packText(packText(p, "Meta"), string(memberTags(i)))
	p = packUint(packText(p, "Incarnation"), uint64(incarnation))
	return packText(packText(p, "Vsn"), "\x01\x02\x02\x02\x05\x04")
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

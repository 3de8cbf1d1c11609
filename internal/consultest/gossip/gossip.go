// Package gossip simulates members of a Consul datacenter's gossip pool. It implements
// the necessary part of version 2 of memberlist's protocol.
//
// Consul's leader deregisters, within a minute, each node that has the check serfHealth
// and is not in the pool.
package gossip

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

// Member is what the pool knows of a member: its name, and the tags of Serf.
type Member struct {
	Name string
	Tags [][2]string
}

// Client returns the Consul client agent name, with the number i as its ID. The leader
// registers its node, and keeps serfHealth as the pool sees it.
func Client(name string, i int) Member {
	return Member{name, [][2]string{
		{"role", "node"},
		{"dc", "dc1"},
		{"segment", ""},
		{"id", fmt.Sprintf("00000000-0000-4000-8000-%012x", i)},
		{"vsn", "2"},
		{"vsn_min", "2"},
		{"vsn_max", "3"},
		{"build", "1.20.1:00000000"},
	}}
}

// Bystander returns the member name that is not an agent of Consul: the leader neither
// registers its node nor deregisters it, and leaves serfHealth to others.
func Bystander(name string) Member { return Member{Name: name} }

// Pool answers the server's pings to all of its members.
type Pool struct {
	udp     *net.UDPConn
	tcp     net.Listener
	members []Member
	numbers map[string]int // of members, by name

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

// Start makes members join the pool of server, and answers for them at ip, port 8301,
// until Close. Without answers, the pool sees its members as failed.
func Start(ctx context.Context, server, ip string, members []Member) (*Pool, error) {
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(ip), Port: 8301})
	if err != nil {
		return nil, err
	}
	tcp, err := net.Listen("tcp4", udp.LocalAddr().String())
	if err != nil {
		udp.Close()
		return nil, err
	}
	p := &Pool{udp: udp, tcp: tcp, members: members, numbers: map[string]int{}}
	for i, m := range members {
		p.numbers[m.Name] = i
	}
	p.running.Go(p.answer)
	p.running.Go(p.accept)
	if err := Join(ctx, server, udp.LocalAddr().(*net.UDPAddr), members); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close ends the answers.
func (p *Pool) Close() {
	p.udp.Close()
	p.tcp.Close()
	p.running.Wait()
}

// answer acknowledges pings until the socket is closed.
func (p *Pool) answer() {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := p.udp.ReadFromUDP(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.packet(buf[:n], from)
		}
	}
}

func (p *Pool) packet(m []byte, from *net.UDPAddr) {
	if len(m) < 2 {
		return
	}
	switch m[0] {
	case msgPing, msgIndirectPing:
		if seq, ok := number32(m, "SeqNo"); ok {
			ack := packMap([]byte{msgAck}, 2)
			ack = packUint(packText(ack, "SeqNo"), uint64(seq))
			ack = append(packText(ack, "Payload"), 0xc0)
			_, _ = p.udp.WriteToUDP(ack, from) // the server repeats a ping whose answer is lost
		}
	case msgSuspect, msgDead:
		p.refute(m, from)
	case msgCompound:
		count, lengths := int(m[1]), m[2:]
		if len(lengths) < 2*count {
			return
		}
		rest := lengths[2*count:]
		for i := range count {
			n := int(binary.BigEndian.Uint16(lengths[2*i:]))
			if n > len(rest) {
				return
			}
			p.packet(rest[:n], from)
			rest = rest[n:]
		}
	case msgCompress:
		if plain, ok := expand(m[1:]); ok {
			p.packet(plain, from)
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
func (p *Pool) accept() {
	for {
		conn, err := p.tcp.Accept()
		if err != nil {
			return
		}
		conn.Close()
	}
}

// refute answers a doubt about a member as the member itself would: it lives, in an
// incarnation after the one that is doubted.
func (p *Pool) refute(doubt []byte, from *net.UDPAddr) {
	node, _ := text(doubt, "Node")
	i, ours := p.numbers[node]
	if !ours {
		return // a Consul agent, which speaks for itself
	}
	incarnation, ok := number32(doubt, "Incarnation")
	if !ok {
		return
	}
	alive := appendMember(packMap([]byte{msgAlive}, 6), "Node", p.udp.LocalAddr().(*net.UDPAddr), p.members[i], incarnation+1)
	_, _ = p.udp.WriteToUDP(alive, from) // who doubts says so several times
}

// Join reports all members alive to server, an address of its gossip pool, as if they could be reached at at.
func Join(ctx context.Context, server string, at *net.UDPAddr, members []Member) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", server)
	if err != nil {
		return fmt.Errorf("join the gossip at %s: %w", server, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err = conn.Write(state(at, members)); err == nil {
		_, err = io.Copy(io.Discard, conn) // the server's own state; then it takes ours in
	}
	if err != nil {
		return fmt.Errorf("join the gossip at %s: %w", server, err)
	}
	return nil
}

// state is a push/pull message: all members live, in their first incarnation.
func state(at *net.UDPAddr, members []Member) []byte {
	p := packMap([]byte{msgPushPull}, 3)
	p = packUint(packText(p, "Nodes"), uint64(len(members)))
	p = packUint(packText(p, "UserStateLen"), 0)
	p = append(packText(p, "Join"), 0xc3)
	for _, m := range members {
		p = appendMember(packMap(p, 7), "Name", at, m, 1)
		p = packUint(packText(p, "State"), 0)
	}
	return p
}

// appendMember appends the six fields that tell of a member; name is that of the field with
// its name.
func appendMember(p []byte, name string, at *net.UDPAddr, m Member, incarnation uint32) []byte {
	tags := packMap([]byte{0xff}, len(m.Tags))
	for _, tag := range m.Tags {
		tags = packText(packText(tags, tag[0]), tag[1])
	}
	p = packText(packText(p, name), m.Name)
	p = packText(packText(p, "Addr"), string(at.IP.To4()))
	p = packUint(packText(p, "Port"), uint64(at.Port))
	p = packText(packText(p, "Meta"), string(tags))
	p = packUint(packText(p, "Incarnation"), uint64(incarnation))
	return packText(packText(p, "Vsn"), "\x01\x02\x02\x02\x05\x04")
}

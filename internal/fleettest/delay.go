//go:build linux

package fleettest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// proxyPort is where a machine's delaying proxy listens, and proxyMark is on
// the packets that it sends itself.
const (
	proxyPort = 18300
	proxyMark = 7
)

// delay is a proxy between a machine and Consul's servers that delays all bytes in
// both directions.
type delay struct {
	m       *Machine
	by      time.Duration
	l       net.Listener
	ctx     context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup
}

// Delay delays the traffic between the machine's Consul agent and the servers, in
// both directions; 0 ends it. Open connections break.
func (m *Machine) Delay(by time.Duration) {
	m.fleet.t.Helper()
	m.fleet.must("delay on "+m.Name, m.setDelay(by))
}

func (m *Machine) setDelay(by time.Duration) error {
	if m.delay != nil {
		m.delay.stop()
		m.delay = nil
	}
	if by == 0 {
		return m.redirect("")
	}
	l, err := m.space.listen(fmt.Sprintf("127.0.0.1:%d", proxyPort))
	if err != nil {
		return err
	}
	d := &delay{m: m, by: by, l: l}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.workers.Go(d.accept)
	m.delay = d
	return m.redirect(fmt.Sprintf("-A OUTPUT -p tcp --dport 8300 -m mark ! --mark %d -j REDIRECT --to-ports %d\n", proxyMark, proxyPort))
}

// redirect replaces the rules for connections to Consul's servers. It resets open
// connections, because they do not use the proxy.
func (m *Machine) redirect(rule string) error {
	filter := "*filter\n:OUTPUT ACCEPT\n-F OUTPUT\nCOMMIT\n"
	if rule != "" {
		filter = fmt.Sprintf("*filter\n-F OUTPUT\n-A OUTPUT -p tcp --dport 8300 -m mark ! --mark %d -j REJECT --reject-with tcp-reset\nCOMMIT\n", proxyMark)
	}
	return m.space.within(func() error {
		return runWith("*nat\n-F OUTPUT\n"+rule+"COMMIT\n"+filter, "iptables-restore", "--noflush")
	})
}

func (d *delay) stop() {
	d.cancel()
	_ = d.l.Close() // ends accept
	d.workers.Wait()
}

func (d *delay) accept() {
	for {
		c, err := d.l.Accept()
		if err != nil {
			if d.ctx.Err() == nil {
				d.m.fleet.failed(fmt.Errorf("the delaying proxy of %s: %w", d.m.Name, err))
			}
			return
		}
		d.workers.Go(func() { d.serve(c.(*net.TCPConn)) })
	}
}

func (d *delay) serve(near *net.TCPConn) {
	defer near.Close()
	target, err := wanted(near)
	if err != nil {
		d.m.fleet.failed(fmt.Errorf("the delaying proxy of %s: %w", d.m.Name, err))
		return
	}
	mark := &net.Dialer{Timeout: 5 * time.Second, Control: func(_, _ string, c syscall.RawConn) (err error) {
		broken := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, proxyMark) })
		return errors.Join(broken, err)
	}}
	far, err := d.m.space.dialWith(d.ctx, mark, "tcp", target)
	if err != nil {
		return // as the server would have: no connection
	}
	defer far.Close()
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { near.Close(); far.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { d.copy(ctx, cancel, far, near) })
	both.Go(func() { d.copy(ctx, cancel, near, far) })
	both.Wait()
}

// piece is a chunk of bytes and the time to deliver it.
type piece struct {
	due  time.Time
	data []byte
}

// copy forwards bytes after the delay until a connection or ctx ends; then it calls
// end, which closes both connections. Several pieces may be in flight.
func (d *delay) copy(ctx context.Context, end func(), to io.Writer, from io.Reader) {
	way := make(chan piece, 4096)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer end()
	reading.Go(func() {
		defer close(way)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if err != nil {
				return
			}
			select {
			case way <- piece{time.Now().Add(d.by), b[:n]}:
			case <-ctx.Done():
				return
			}
		}
	})
	for p := range way {
		if err := sleepUntil(ctx, p.due); err != nil {
			return
		}
		if _, err := to.Write(p.data); err != nil {
			return
		}
	}
}

func sleepUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// wanted returns the original destination of a redirected connection.
func wanted(c *net.TCPConn) (addr string, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return "", err
	}
	var original *unix.IPv6Mreq // as large as an IPv4 socket address: family, port, address
	broken := raw.Control(func(fd uintptr) {
		original, err = unix.GetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IP, unix.SO_ORIGINAL_DST)
	})
	if err = errors.Join(broken, err); err != nil {
		return "", fmt.Errorf("where a connection was going: %w", err)
	}
	b := original.Multiaddr
	ip := net.IPv4(b[4], b[5], b[6], b[7]).String()
	return strings.Join([]string{ip, fmt.Sprint(int(b[2])<<8 | int(b[3]))}, ":"), nil
}

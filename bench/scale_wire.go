package main

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync/atomic"

	jorcconsul "github.com/jorc/jorc/internal/consul"
)

// traffic counts the requests of a fleet's agents to Consul.
type traffic struct {
	reads     atomic.Int64 // GETs and transactions that only read
	blocking  atomic.Int64 // reads with an index
	writes    atomic.Int64 // successful ones
	conflicts atomic.Int64 // writes that lost to another writer
	other     atomic.Int64 // sessions renewed and the like
	failures  atomic.Int64 // answers of 5xx and 429
	sent      atomic.Int64 // bytes
	received  atomic.Int64 // bytes

	kinds *kinds // nil: not wanted
}

// tally is what was counted up to a moment, or between two.
type tally struct{ Reads, Blocking, Writes, Conflicts, Other, Failures, Sent, Received float64 }

func (t *traffic) now() tally {
	f := func(n *atomic.Int64) float64 { return float64(n.Load()) }
	return tally{f(&t.reads), f(&t.blocking), f(&t.writes), f(&t.conflicts), f(&t.other), f(&t.failures), f(&t.sent), f(&t.received)}
}

func (t tally) since(o tally) tally {
	return tally{
		t.Reads - o.Reads, t.Blocking - o.Blocking, t.Writes - o.Writes, t.Conflicts - o.Conflicts,
		t.Other - o.Other, t.Failures - o.Failures, t.Sent - o.Sent, t.Received - o.Received,
	}
}

func (t tally) plus(o tally) tally { return t.since(tally{}.since(o)) }

// requests is all that was asked.
func (t tally) requests() float64 { return t.Reads + t.Writes + t.Conflicts + t.Other + t.Failures }

// from makes a client open its connections from an address of its own, and
// counts what goes over them.
func (t *traffic) from(ip net.IP) jorcconsul.Option {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}
	return jorcconsul.WithDialer(func(jorcconsul.DialFunc) jorcconsul.DialFunc {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &wire{Conn: conn, traffic: t}, nil
		}
	})
}

// wire is a connection without pipelining: each request begins with a Write, its
// answer with a Read.
type wire struct {
	net.Conn
	traffic *traffic
	asked   atomic.Int32 // what for
	kind    atomic.Value // string: the last request's, where kinds are counted
}

// What a wire waits for the answer of.
const (
	nothing int32 = iota
	aRead
	aBlocking
	aTransaction // that may only read
	aWrite
	another
)

var writingVerbs = [][]byte{
	[]byte(`"Verb":"set"`), []byte(`"Verb":"cas"`), []byte(`"Verb":"delete`), []byte(`"Verb":"lock"`), []byte(`"Verb":"unlock"`),
}

func (w *wire) Write(p []byte) (int, error) {
	w.traffic.sent.Add(int64(len(p)))
	if w.asked.CompareAndSwap(nothing, kindOf(p)) && w.traffic.kinds != nil {
		w.kind.Store(kindOfRequest(p))
	}
	if w.asked.Load() == aTransaction && slices.ContainsFunc(writingVerbs, func(verb []byte) bool { return bytes.Contains(p, verb) }) {
		w.asked.Store(aWrite)
	}
	return w.Conn.Write(p)
}

func kindOf(p []byte) int32 {
	line, _, _ := bytes.Cut(p, []byte("\r\n"))
	switch {
	case bytes.HasPrefix(line, []byte("GET ")) && bytes.Contains(line, []byte("index=")):
		return aBlocking
	case bytes.HasPrefix(line, []byte("GET ")):
		return aRead
	case bytes.HasPrefix(line, []byte("PUT /v1/txn")):
		return aTransaction
	case bytes.Contains(line, []byte("/v1/kv/")), bytes.Contains(line, []byte("/session/create")), bytes.Contains(line, []byte("/session/destroy")):
		return aWrite
	}
	return another
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.traffic.received.Add(int64(n))
	if n > 0 {
		asked := w.asked.Swap(nothing)
		what := w.traffic.count(asked, p[:n])
		if kind, ok := w.kind.Load().(string); ok {
			what.Received = n
			w.traffic.kinds.add(kind, what)
		}
	}
	return n, err
}

// count counts a request by its answer, and returns how it was counted.
func (t *traffic) count(asked int32, answer []byte) kindTally {
	status := string(answer[min(len("HTTP/1.1 "), len(answer)):min(len("HTTP/1.1 200"), len(answer))])
	switch {
	case asked == nothing: // more of an answer
		return kindTally{}
	case status == "429" || status >= "500":
		t.failures.Add(1)
		return kindTally{Requests: 1, Failures: 1}
	case asked == aBlocking:
		t.blocking.Add(1)
		t.reads.Add(1)
	case asked == aRead || asked == aTransaction:
		t.reads.Add(1)
	case asked == aWrite && (status == "409" || bytes.HasSuffix(bytes.TrimSpace(answer), []byte("false"))):
		t.conflicts.Add(1)
		return kindTally{Requests: 1, Conflicts: 1}
	case asked == aWrite:
		t.writes.Add(1)
	default:
		t.other.Add(1)
	}
	return kindTally{Requests: 1}
}

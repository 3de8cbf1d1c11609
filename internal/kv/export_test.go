package kv

import "time"

// RoundTrip decodes a document and encodes it again over itself.
func RoundTrip[T any](data []byte, format int) ([]byte, error) {
	c := document[T]{format: format}
	v, err := c.decode(data)
	if err != nil {
		return nil, err
	}
	return c.encode(v, data)
}

// Part is one transaction of a batch.
type Part struct {
	Txn    *Txn
	Groups int
}

// Parts returns the transactions that b would be carried out in.
func (b *NonAtomicBatch) Parts() ([]Part, error) {
	parts, err := b.split(MaxOps, MaxBody)
	out := make([]Part, len(parts))
	for i, p := range parts {
		out[i] = Part{p.txn, p.groups}
	}
	return out, err
}

// Keys returns the keys of t's operations in order.
func (t *Txn) Keys() []string { return t.names }

// Body returns what t sends.
func (t *Txn) Body() any { return t.ops }

// SessionID returns the session of a lease.
func (l *Lease) SessionID() string { return l.session.id }

// BusyKeys returns how many keys have a lock or a back-off in this process.
func (s *Store) BusyKeys() int {
	s.writers.mu.Lock()
	defer s.writers.mu.Unlock()
	return len(s.writers.keys)
}

// CASBackoff is the back-off between two compare-and-swaps.
type CASBackoff struct{ b casBackoff }

// Failed is casBackoff.failed.
func (c *CASBackoff) Failed(took time.Duration) time.Duration { return c.b.failed(took) }

// Succeeded is casBackoff.succeeded.
func (c *CASBackoff) Succeeded(took time.Duration) { c.b.succeeded(took) }

// Window returns the present window.
func (c *CASBackoff) Window() time.Duration { return c.b.window }

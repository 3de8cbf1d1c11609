package kv

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
	parts, err := b.split()
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

// SessionID returns the session of a held lock.
func (h *Held) SessionID() string { return h.session.id }

// Waiting returns how many wait for a shared update of key.
func (s *Store) Waiting(key string) int {
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	if q := s.turns.queues[s.Path(key)]; q != nil {
		return len(q.waiting)
	}
	return 0
}

// Learned returns how many keys the store remembers something of.
func (s *Store) Learned() int {
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	return len(s.turns.queues)
}

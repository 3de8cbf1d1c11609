package kv

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

// settleWithin is how long to look for what became of a write whose answer
// never came.
const settleWithin = 15 * time.Second

// swap writes value if key's index still is index, and returns the new index.
func (s *Store) swap(ctx context.Context, key string, value []byte, index, mark uint64) (uint64, error) {
	if len(value) > MaxValue {
		return 0, tooLarge("write key", s.Path(key), "%d bytes; the limit is %d", len(value), MaxValue)
	}
	t := s.Txn()
	t.add(consul.KVCAS, key, consul.KVTxnOp{Value: value, Flags: mark, Index: index})
	if s.held == nil && t.Size() > MaxBody {
		return s.swapPlain(ctx, key, value, index, mark)
	}
	r, err := t.Commit(ctx)
	if err != nil {
		return 0, err
	}
	return r.Index(key), nil
}

// swapPlain is swap for values that fit into a key but not, base64 and all,
// into a transaction. Consul does not tell the new index then.
func (s *Store) swapPlain(ctx context.Context, key string, value []byte, index, mark uint64) (uint64, error) {
	if err := s.check(key); err != nil {
		return 0, err
	}
	ok, err := s.client.KVCAS(ctx, &consul.KVPair{Key: s.Path(key), Value: value, Flags: mark, ModifyIndex: index})
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, conflict("cas", key, "index is stale")
	}
	p, _, err := s.get(ctx, key, consul.Query{Consistent: true})
	if err != nil || p == nil || p.Flags != mark {
		return 0, nil // written, and the index is unknown or passed by: the next write will conflict
	}
	return p.ModifyIndex, nil
}

// settle finds out what became of a write whose answer never came: unknown is
// the error it ended with. It returns the new index when the write was carried
// out, and unknown when that cannot be told.
//
// The write is found by its mark. While the key still has the index that the
// write asked for, the write has not been carried out so far, and sending it
// again is sound: of all that ask for one index at most one is ever carried
// out. With any other index and mark it may have been carried out and
// overwritten since. A key that was and is absent may have been created and
// deleted, so a creation is never sent again.
func (s *Store) settle(ctx context.Context, key string, value []byte, index, mark uint64, unknown error) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	var b backoff
	for {
		p, _, err := s.get(ctx, key, consul.Query{Consistent: true})
		switch {
		case errors.Is(err, consul.ErrUnreachable), errors.Is(err, consul.ErrRateLimited):
			if b.wait(ctx, settlePause) != nil {
				return 0, unknown
			}
			continue
		case err != nil:
			return 0, unknown
		case p != nil && p.Flags == mark && bytes.Equal(p.Value, value):
			return p.ModifyIndex, nil
		case p == nil || index == 0 || p.ModifyIndex != index:
			return 0, unknown
		}
		n, err := s.swap(ctx, key, value, index, mark)
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, ErrConflict): // the first one may have arrived meanwhile: look again
		case errors.Is(err, consul.ErrOutcomeUnknown), errors.Is(err, consul.ErrUnreachable), errors.Is(err, consul.ErrRateLimited):
			if b.wait(ctx, settlePause) != nil {
				return 0, unknown
			}
		default:
			return 0, unknown
		}
	}
}

const settlePause = 50 * time.Millisecond

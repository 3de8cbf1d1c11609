package consul

import (
	"context"
	"time"

	"github.com/hashicorp/consul/api"
)

// KVPut writes one key whatever it holds. Flags and session of p are kept.
func (c *Client) KVPut(ctx context.Context, p *KVPair) error {
	return c.writeOnly(ctx, "write key", p.Key, func(ctx context.Context) error {
		_, err := c.api.KV().Put(p, writeOptions(ctx))
		return err
	})
}

// KVCAS writes one key if its index still is p.ModifyIndex; 0 means that the
// key does not exist. It reports whether it wrote.
func (c *Client) KVCAS(ctx context.Context, p *KVPair) (bool, error) {
	return write(ctx, c, "write key", p.Key, func(ctx context.Context) (bool, error) {
		ok, _, err := c.api.KV().CAS(p, writeOptions(ctx))
		return ok, err
	})
}

// KVDeleteCAS deletes one key if its index still is index. It reports whether
// it deleted.
func (c *Client) KVDeleteCAS(ctx context.Context, key string, index uint64) (bool, error) {
	return write(ctx, c, "delete key", key, func(ctx context.Context) (bool, error) {
		ok, _, err := c.api.KV().DeleteCAS(&KVPair{Key: key, ModifyIndex: index}, writeOptions(ctx))
		return ok, err
	})
}

// KVDeleteTree deletes all keys below prefix.
func (c *Client) KVDeleteTree(ctx context.Context, prefix string) error {
	return c.writeOnly(ctx, "delete keys", prefix, func(ctx context.Context) error {
		_, err := c.api.KV().DeleteTree(prefix, writeOptions(ctx))
		return err
	})
}

// Txn carries out all operations or none. ok is false when Consul rolled back;
// the response's Errors then say which operation did not hold.
func (c *Client) Txn(ctx context.Context, name string, ops TxnOps) (ok bool, resp *TxnResponse, err error) {
	resp, err = write(ctx, c, "transaction on", name, func(ctx context.Context) (*TxnResponse, error) {
		var r *TxnResponse
		var err error
		ok, r, _, err = c.api.Txn().Txn(ops, (&api.QueryOptions{}).WithContext(ctx))
		return r, err
	})
	return ok && err == nil, resp, err
}

// TxnRead carries out read-only operations as one consistent read.
func (c *Client) TxnRead(ctx context.Context, name string, ops TxnOps) (*TxnResponse, error) {
	resp, _, err := read(ctx, c, "read keys", name, Query{}, func(o *api.QueryOptions) (*TxnResponse, *api.QueryMeta, error) {
		_, r, m, err := c.api.Txn().Txn(ops, o)
		return r, m, err
	})
	return resp, err
}

// SessionCreate makes a session and returns its id.
func (c *Client) SessionCreate(ctx context.Context, s *SessionEntry) (string, error) {
	return write(ctx, c, "create session", s.Name, func(ctx context.Context) (string, error) {
		id, _, err := c.api.Session().Create(s, writeOptions(ctx))
		return id, err
	})
}

// SessionRenew extends a session by its TTL and returns that. ErrNotFound: it
// has ended.
func (c *Client) SessionRenew(ctx context.Context, id string) (time.Duration, error) {
	return write(ctx, c, "renew session", id, func(ctx context.Context) (time.Duration, error) {
		s, _, err := c.api.Session().Renew(id, writeOptions(ctx))
		if err != nil {
			return 0, err
		}
		if s == nil {
			return 0, &Error{Op: "renew session", Name: id, Class: ErrNotFound, Err: errNoSession}
		}
		return time.ParseDuration(s.TTL)
	})
}

// SessionDestroy ends a session; its locks are released.
func (c *Client) SessionDestroy(ctx context.Context, id string) error {
	return c.writeOnly(ctx, "destroy session", id, func(ctx context.Context) error {
		_, err := c.api.Session().Destroy(id, writeOptions(ctx))
		return err
	})
}

package consul

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/hashicorp/consul/api"
)

// KVPut writes one key unconditionally, with the flags and session of p.
func (c *Client) KVPut(ctx context.Context, p *KVPair) error {
	return c.writeOnly(ctx, "write key", p.Key, func(ctx context.Context) error {
		_, err := c.api.KV().Put(p, writeOptions(ctx))
		return err
	})
}

// KVCAS writes one key if its index is p.ModifyIndex; 0 means that the key does
// not exist. It reports whether it wrote.
func (c *Client) KVCAS(ctx context.Context, p *KVPair) (bool, error) {
	return write(ctx, c, "write key", p.Key, func(ctx context.Context) (bool, error) {
		ok, _, err := c.api.KV().CAS(p, writeOptions(ctx))
		return ok, err
	})
}

// KVDeleteCAS deletes one key if its index is index. It reports whether
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

// Txn carries out all operations or none. If Consul rolled back, ok is false and
// the response's Errors name the operations that failed.
func (c *Client) Txn(ctx context.Context, name string, ops TxnOps) (ok bool, resp *TxnResponse, err error) {
	resp, err = write(ctx, c, "transaction on", name, func(ctx context.Context) (*TxnResponse, error) {
		var r *TxnResponse
		ok, r, err = c.txn(ctx, ops)
		return r, err
	})
	return ok && err == nil, resp, err
}

// TxnRead carries out read-only operations as one consistent read. The
// response's Errors name the checks that failed.
func (c *Client) TxnRead(ctx context.Context, name string, ops TxnOps) (*TxnResponse, error) {
	resp, _, err := read(ctx, c, "read keys", name, Query{}, func(o *api.QueryOptions) (*TxnResponse, *api.QueryMeta, error) {
		_, r, err := c.txn(o.Context(), ops)
		return r, nil, err
	})
	return resp, err
}

// txn sends a transaction. The API's own call hides the HTTP status of a refusal,
// which distinguishes "not carried out" from "outcome unknown".
func (c *Client) txn(ctx context.Context, ops TxnOps) (ok bool, resp *TxnResponse, err error) {
	resp = &TxnResponse{}
	_, err = c.api.Raw().Write("/v1/txn", ops, resp, writeOptions(ctx))
	var status api.StatusError
	if errors.As(err, &status) && status.Code == http.StatusConflict {
		return false, resp, json.Unmarshal([]byte(status.Body), resp)
	}
	return err == nil, resp, err
}

// SessionCreate creates a session and returns its id. Without checks in s only
// its TTL ends it: no failing check, not even its node's, ends it early.
func (c *Client) SessionCreate(ctx context.Context, s *SessionEntry) (string, error) {
	return write(ctx, c, "create session", s.Name, func(ctx context.Context) (string, error) {
		create := c.api.Session().Create
		if len(s.Checks)+len(s.NodeChecks)+len(s.ServiceChecks) == 0 {
			create = c.api.Session().CreateNoChecks
		}
		id, _, err := create(s, writeOptions(ctx))
		return id, err
	})
}

// SessionRenew extends a session by its TTL and returns the TTL. ErrNotFound:
// the session has ended.
func (c *Client) SessionRenew(ctx context.Context, id string) (time.Duration, error) {
	return write(ctx, c, "renew session", id, func(ctx context.Context) (time.Duration, error) {
		var s []*SessionEntry
		_, err := c.api.Raw().Write("/v1/session/renew/"+id, nil, &s, writeOptions(ctx))
		if err != nil {
			return 0, err
		}
		if len(s) == 0 {
			return 0, &Error{Op: "renew session", Name: id, Class: ErrNotFound, Err: errNoSession}
		}
		return time.ParseDuration(s[0].TTL)
	})
}

// SessionDestroy ends a session; its locks are released.
func (c *Client) SessionDestroy(ctx context.Context, id string) error {
	return c.writeOnly(ctx, "destroy session", id, func(ctx context.Context) error {
		_, err := c.api.Session().Destroy(id, writeOptions(ctx))
		return err
	})
}

package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/hashicorp/consul/api"
)

// requestTimeout ends a request that does not block.
const requestTimeout = 10 * time.Second

// Query says how to read. The zero value reads the present state of the
// client's own datacenter with Consul's default consistency.
type Query struct {
	Index uint64        // above zero: wait until the answer's index is higher
	Wait  time.Duration // the longest that Consul may wait; used with Index
	Hash  string        // as Index, for agent endpoints that block on a content hash

	Datacenter    string
	Namespace     string
	Partition     string
	Peer          string
	SamenessGroup string
	Near          string
	Filter        string
	Consistent    bool
}

// Meta is what Consul says about an answer.
type Meta struct {
	Index       uint64
	Hash        string
	LastContact time.Duration
	// Filtered: ACLs removed something from the answer; emptiness proves nothing.
	Filtered bool
	// Partial is set by a Source whose answer lacks something for want of
	// rights, so that it is asked again soon even though nothing changed.
	Partial bool
	// Content stands for what the answer holds, where that is known: a higher
	// index with the same Content is no news. Zero: not known.
	Content uint64
}

// options translates q; the context ends a request that Consul should have
// answered by then (it waits at most Wait + Wait/16).
func (q Query) options(ctx context.Context) (*api.QueryOptions, context.CancelFunc) {
	timeout := requestTimeout
	if q.blocking() {
		timeout += q.Wait + q.Wait/16
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errStuck)
	o := &api.QueryOptions{
		WaitIndex: q.Index, WaitTime: q.Wait, WaitHash: q.Hash,
		Datacenter: q.Datacenter, Namespace: q.Namespace, Partition: q.Partition,
		Peer: q.Peer, SamenessGroup: q.SamenessGroup, Near: q.Near, Filter: q.Filter,
		RequireConsistent: q.Consistent,
	}
	return o.WithContext(ctx), cancel
}

func (q Query) blocking() bool { return q.Index > 0 || q.Hash != "" }

var (
	errStuck     = errors.New("no answer long after Consul should have given one")
	errNoSession = errors.New("the session has ended")
)

// read carries out one query and classifies what went wrong.
func read[T any](ctx context.Context, c *Client, op, name string, q Query,
	ask func(*api.QueryOptions) (T, *api.QueryMeta, error),
) (T, Meta, error) {
	var zero T
	o, cancel := q.options(ctx)
	defer cancel()
	v, m, err := ask(o)
	if err != nil {
		if ctx.Err() == nil && errors.Is(context.Cause(o.Context()), errStuck) {
			err = errStuck
		}
		err = classify(ctx, op, name, false, err)
		c.answered(err)
		return zero, Meta{}, err
	}
	c.answered(nil)
	if m == nil {
		return v, Meta{}, nil
	}
	meta := Meta{Index: m.LastIndex, Hash: m.LastContentHash, LastContact: m.LastContact, Filtered: m.ResultsFilteredByACLs}
	return v, meta, nil
}

// write carries out one request that changes something.
func write[T any](ctx context.Context, c *Client, op, name string, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	v, err := do(ctx)
	err = classify(ctx, op, name, true, err)
	c.answered(err)
	return v, err
}

// raw asks an endpoint for which the API has no call that takes a context.
func raw[T any](c *Client, endpoint string) func(*api.QueryOptions) (T, *api.QueryMeta, error) {
	return func(o *api.QueryOptions) (T, *api.QueryMeta, error) {
		var v T
		m, err := c.api.Raw().Query(endpoint, &v, o)
		return v, m, err
	}
}

// post asks a kind of endpoint for which the API has no call: those that answer
// to POST. Refusals are api.StatusErrors, as the API's own calls have them.
func (c *Client) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	resp, err := c.send(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(out)
}

// send sends one request; the answer is an http.StatusOK.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return resp, nil
}

// refusal is an answer that is none.
func refusal(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("read the refusal: %w", err)
	}
	return api.StatusError{Code: resp.StatusCode, Body: string(text)}
}

// The API's own types, under names that packages above can use without
// importing the API.
type (
	KVPair              = api.KVPair
	KVPairs             = api.KVPairs
	ServiceEntry        = api.ServiceEntry
	ServiceAddress      = api.ServiceAddress
	HealthCheck         = api.HealthCheck
	HealthChecks        = api.HealthChecks
	CatalogService      = api.CatalogService
	CatalogNode         = api.CatalogNode
	CatalogRegistration = api.CatalogRegistration
	CatalogDeregister   = api.CatalogDeregistration
	Node                = api.Node
	AgentService        = api.AgentService
	AgentCheck          = api.AgentCheck
	AgentWeights        = api.AgentWeights
	ServiceRegistration = api.AgentServiceRegistration
	ServiceCheck        = api.AgentServiceCheck
	CARootList          = api.CARootList
	CARoot              = api.CARoot
	LeafCert            = api.LeafCert
	TxnOp               = api.TxnOp
	TxnOps              = api.TxnOps
	TxnResponse         = api.TxnResponse
	TxnError            = api.TxnError
	KVTxnOp             = api.KVTxnOp
	KVOp                = api.KVOp
	NodeTxnOp           = api.NodeTxnOp
	ServiceTxnOp        = api.ServiceTxnOp
	CheckTxnOp          = api.CheckTxnOp
	SessionEntry        = api.SessionEntry
	ACLToken            = api.ACLToken
	ACLPolicy           = api.ACLPolicy
	ACLTokenPolicyLink  = api.ACLTokenPolicyLink
)

// Verbs of KV operations in a transaction.
const (
	KVSet            = api.KVSet
	KVDelete         = api.KVDelete
	KVDeleteCAS      = api.KVDeleteCAS
	KVDeleteTree     = api.KVDeleteTree
	KVCAS            = api.KVCAS
	KVLock           = api.KVLock
	KVUnlock         = api.KVUnlock
	KVGet            = api.KVGet
	KVGetOrEmpty     = api.KVGetOrEmpty
	KVGetTree        = api.KVGetTree
	KVCheckSession   = api.KVCheckSession
	KVCheckIndex     = api.KVCheckIndex
	KVCheckNotExists = api.KVCheckNotExists
)

// States of health checks and services, as Consul writes them.
const (
	HealthPassing  = api.HealthPassing
	HealthWarning  = api.HealthWarning
	HealthCritical = api.HealthCritical
	HealthMaint    = api.HealthMaint
)

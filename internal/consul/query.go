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

// requestTimeout ends a request that does not block. A watch gives its next query more time
// if Consul does not answer but is there, up to mostPatience: a busy Consul continues a
// query that was given up, so that a query asked again makes it busier.
const (
	requestTimeout = 10 * time.Second
	mostPatience   = 2 * time.Minute
)

// Query holds the options of a read. The zero value reads the current state of
// the client's own datacenter with Consul's default consistency.
type Query struct {
	Index uint64        // above zero: wait until the answer's index is higher
	Wait  time.Duration // how long Consul may wait at most; used with Index
	Hash  string        // as Index, for agent endpoints that block on a content hash

	Datacenter    string
	Namespace     string
	Partition     string
	Peer          string
	SamenessGroup string
	Near          string
	Filter        string
	Consistent    bool

	// MaxBytes above zero bounds the answer: a longer one is ErrTooLong, and no more of
	// it is read.
	MaxBytes int64

	// MaxPause above zero bounds the pauses of a watch after answers without news, and so how
	// late it may be; see nextIdlePause.
	MaxPause time.Duration
}

// Meta describes an answer.
type Meta struct {
	Index       uint64
	Hash        string
	LastContact time.Duration
	// Filtered: ACLs removed something from the answer, which may thus be empty.
	Filtered bool
	// Partial is set by a Source whose answer is incomplete because rights are
	// missing. The watch then queries again soon, even if nothing changes.
	Partial bool
	// Content identifies the answer's content, where that is known: a higher
	// index with the same Content is not a change. Zero: not known.
	Content uint64
}

// options translates q; its context ends a request that Consul should have
// answered (it waits at most Wait + Wait/16).
func (q Query) options(ctx context.Context) (*api.QueryOptions, context.CancelFunc) {
	timeout := requestTimeout
	if patience, ok := ctx.Value(patienceKey{}).(time.Duration); ok {
		timeout = patience
	}
	if q.blocking() {
		timeout += q.Wait + q.Wait/16
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errStuck)
	if q.MaxBytes > 0 {
		ctx = context.WithValue(ctx, maxBytesKey{}, q.MaxBytes)
	}
	o := &api.QueryOptions{
		WaitIndex: q.Index, WaitTime: q.Wait, WaitHash: q.Hash,
		Datacenter: q.Datacenter, Namespace: q.Namespace, Partition: q.Partition,
		Peer: q.Peer, SamenessGroup: q.SamenessGroup, Near: q.Near, Filter: q.Filter,
		RequireConsistent: q.Consistent,
	}
	return o.WithContext(ctx), cancel
}

// patienceKey is the key of a watch's patience in the context of its requests: how long an answer may
// take beyond a query's wait.
type patienceKey struct{}

// maxBytesKey is the key of Query.MaxBytes in a request's context.
type maxBytesKey struct{}

// boundedBody is an answer that may not be longer than left.
type boundedBody struct {
	io.ReadCloser
	left, limit int64
}

// tooLongError is the bound that an answer exceeds, in bytes.
type tooLongError int64

func (e tooLongError) Error() string        { return fmt.Sprintf("it has more than %d bytes", int64(e)) }
func (e tooLongError) Is(target error) bool { return target == ErrTooLong }

// bounded cuts the body of an answer off after the request's Query.MaxBytes.
func bounded(r *http.Response) *http.Response {
	if limit, ok := r.Request.Context().Value(maxBytesKey{}).(int64); ok && r.StatusCode == http.StatusOK {
		r.Body = &boundedBody{r.Body, limit, limit}
	}
	return r
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, tooLongError(b.limit)
	}
	return n, err
}

func (q Query) blocking() bool { return q.Index > 0 || q.Hash != "" }

var (
	errStuck     = errors.New("no answer in time")
	errNoSession = errors.New("the session has ended")
)

// read sends one query and classifies its error.
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
		c.record(err)
		return zero, Meta{}, err
	}
	c.record(nil)
	if m == nil {
		return v, Meta{}, nil
	}
	meta := Meta{Index: m.LastIndex, Hash: m.LastContentHash, LastContact: m.LastContact, Filtered: m.ResultsFilteredByACLs}
	return v, meta, nil
}

// write sends one request that changes something.
func write[T any](ctx context.Context, c *Client, op, name string, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	v, err := do(ctx)
	err = classify(ctx, op, name, true, err)
	c.record(err)
	return v, err
}

// raw queries an endpoint whose call in the API takes no context.
func raw[T any](c *Client, endpoint string) func(*api.QueryOptions) (T, *api.QueryMeta, error) {
	return func(o *api.QueryOptions) (T, *api.QueryMeta, error) {
		var v T
		m, err := c.api.Raw().Query(endpoint, &v, o)
		return v, m, err
	}
}

// post sends a POST that changes nothing, for which the API has no call. Refusals are
// api.StatusErrors, as those of the API's own calls.
func (c *Client) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	// net/http does not send an empty field, but repeats the request as it repeats a GET: when
	// a connection that was kept open ends before the answer begins.
	req.Header["Idempotency-Key"] = nil
	resp, err := c.do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(out)
}

// send sends one request. Any other status than 200 is an error. A PUT is never repeated:
// its outcome is unknown.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	return c.do(req)
}

func (c *Client) do(req *http.Request) (*http.Response, error) {
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

// maxRefusal bounds the text of a refusal. The longest one names the reasons of
// the 64 operations of a transaction.
const maxRefusal = 128 << 10

// refusal returns the error of an answer with another status than 200.
func refusal(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		return fmt.Errorf("read the error message: %w", err)
	}
	return api.StatusError{Code: resp.StatusCode, Body: string(text)}
}

// The API's types, for packages that do not import the API.
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

// Status values of health checks and services, as Consul writes them.
const (
	HealthPassing  = api.HealthPassing
	HealthWarning  = api.HealthWarning
	HealthCritical = api.HealthCritical
	HealthMaint    = api.HealthMaint
)

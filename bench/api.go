package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// api makes requests to Consul on connections that stay open.
type api struct {
	base   string
	client *http.Client
}

func newAPI(base string) *api {
	return &api{base: base, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4, MaxConnsPerHost: 16}}}
}

// request makes a request and returns the head and the body of the answer.
func (a *api) request(ctx context.Context, method, path string, body []byte) (http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(answer))
	}
	return resp.Header, answer, nil
}

// do makes a request and decodes the answer into out, unless it is nil.
func (a *api) do(ctx context.Context, method, path string, body []byte, out any) (http.Header, error) {
	head, answer, err := a.request(ctx, method, path, body)
	if err == nil && out != nil {
		err = json.Unmarshal(answer, out)
	}
	return head, err
}

func (a *api) get(ctx context.Context, path string, out any) error {
	_, err := a.do(ctx, http.MethodGet, path, nil, out)
	return err
}

// raw returns an answer as it is.
func (a *api) raw(ctx context.Context, path string) ([]byte, error) {
	_, answer, err := a.request(ctx, http.MethodGet, path, nil)
	return answer, err
}

func (a *api) putJSON(ctx context.Context, path string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = a.do(ctx, http.MethodPut, path, body, nil)
	return err
}

func (a *api) putKey(ctx context.Context, key, value string) error {
	_, err := a.do(ctx, http.MethodPut, "/v1/kv/"+key, []byte(value), nil)
	return err
}

// txnOps is Consul's limit on the operations of one transaction.
const txnOps = 64

// putKeys writes many keys.
func (a *api) putKeys(ctx context.Context, n int, pair func(i int) (key, value string)) error {
	type kv struct {
		Verb, Key string
		Value     []byte
	}
	type op struct{ KV kv }
	for at := 0; at < n; at += txnOps {
		var ops []op
		for i := at; i < min(at+txnOps, n); i++ {
			key, value := pair(i)
			ops = append(ops, op{KV: kv{Verb: "set", Key: key, Value: []byte(value)}})
		}
		if err := a.putJSON(ctx, "/v1/txn", ops); err != nil {
			return err
		}
	}
	return nil
}

// block reads a key once its index is above index.
func (a *api) block(ctx context.Context, key string, index uint64) (uint64, error) {
	path := fmt.Sprintf("/v1/kv/%s?raw&wait=60s&index=%d", key, index)
	head, err := a.do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(head.Get("X-Consul-Index"), 10, 64)
}

// raftIndex is the index of the last committed entry of the Raft log.
func (a *api) raftIndex(ctx context.Context) (uint64, error) {
	var self struct {
		Stats struct {
			Raft struct {
				Commit string `json:"commit_index"`
			} `json:"raft"`
		}
	}
	if err := a.get(ctx, "/v1/agent/self", &self); err != nil {
		return 0, err
	}
	return strconv.ParseUint(self.Stats.Raft.Commit, 10, 64)
}

// instance is one registration in the catalog, on a node that no agent keeps.
type instance struct {
	node, service, id, address string
	port                       int
	status                     string // of its check
}

func (i instance) check() map[string]any {
	return map[string]any{
		"Node": i.node, "CheckID": "service:" + i.id, "Name": "check", "ServiceID": i.id, "ServiceName": i.service, "Status": i.status,
	}
}

func (i instance) definition() map[string]any {
	return map[string]any{"ID": i.id, "Service": i.service, "Address": i.address, "Port": i.port, "Tags": []string{"bench"}}
}

func (i instance) registration(parts map[string]any) map[string]any {
	parts["Node"], parts["Address"], parts["SkipNodeUpdate"] = i.node, "10.0.0.1", true
	return parts
}

// register writes an instance with its check.
func (a *api) register(ctx context.Context, i instance) error {
	return a.putJSON(ctx, "/v1/catalog/register", i.registration(map[string]any{"Service": i.definition(), "Check": i.check()}))
}

// registerAgain writes the instance alone: its check stays as it is.
func (a *api) registerAgain(ctx context.Context, i instance) error {
	return a.putJSON(ctx, "/v1/catalog/register", i.registration(map[string]any{"Service": i.definition()}))
}

// setCheck writes its check alone.
func (a *api) setCheck(ctx context.Context, i instance) error {
	return a.putJSON(ctx, "/v1/catalog/register", i.registration(map[string]any{"Check": i.check()}))
}

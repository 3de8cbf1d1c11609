//go:build linux

package fleettest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// client makes requests from within a machine, with its certificate.
func (f *Fleet) client(m *Machine) (*http.Client, error) {
	conf, err := f.tls.client(m.Dir)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{DialContext: m.space.dial, TLSClientConfig: conf}}, nil
}

// Raw is a request or response body that is not JSON.
type Raw string

// ask makes one request from within a machine; Consul is asked as token.
func (f *Fleet) ask(ctx context.Context, m *Machine, base, method, path, token string, in, out any) error {
	c, err := f.client(m)
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var body []byte
	if raw, ok := in.(Raw); ok {
		body = []byte(raw)
	} else if in != nil {
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	_, err = request(ctx, c, method, base+path, token, body, out)
	return err
}

// request returns the index of Consul's answer.
func request(ctx context.Context, c *http.Client, method, url, token string, body []byte, out any) (index string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Consul-Token", token)
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode >= 300 {
		return "", &statusError{resp.StatusCode, string(data)}
	}
	if out == nil {
		return "", nil
	}
	return resp.Header.Get("X-Consul-Index"), json.Unmarshal(data, out)
}

// statusError is an answer with an error status.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d %s", e.code, e.text) }

// API asks Consul with the management token, by the first server that answers,
// from the operator's host.
func (f *Fleet) API(ctx context.Context, method, path string, in, out any) error {
	var errs []error
	for _, s := range f.Servers {
		err := f.ask(ctx, f.Operator.Machine, "https://"+s.IP+":8501", method, path, f.acl.root, in, out)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// WaitWritable waits until Consul takes writes.
func (f *Fleet) WaitWritable() {
	f.t.Helper()
	f.Eventually("Consul to take writes", f.mayWrite)
}

// Put writes a key of the cluster. Do not use it while servers fail: it repeats a
// write without an answer.
func (f *Fleet) Put(key, value string) {
	f.t.Helper()
	f.must("put "+key, f.API(context.Background(), http.MethodPut, "/v1/kv/"+prefix+key, Raw(value), nil))
}

// Leader returns the server that leads Consul. It waits until a server leads and the
// failure of any one server is tolerated.
func (f *Fleet) Leader() *Server {
	f.t.Helper()
	var leader *Server
	f.Eventually("Consul to have a leader", func(ctx context.Context) error {
		var addr string
		var health struct{ FailureTolerance int }
		if err := f.API(ctx, http.MethodGet, "/v1/operator/autopilot/health", nil, &health); err != nil {
			return err
		}
		if health.FailureTolerance < 1 {
			return errors.New("not all servers are voters that follow")
		}
		for _, s := range f.Servers {
			base := "https://" + s.IP + ":8501"
			if err := f.ask(ctx, f.Operator.Machine, base, http.MethodGet, "/v1/status/leader", f.acl.root, nil, &addr); err != nil {
				continue
			}
			if addr == s.IP+":8300" {
				leader = s
				return f.mayWrite(ctx)
			}
		}
		return errors.New("no server says that it leads")
	})
	return leader
}

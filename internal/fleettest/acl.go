//go:build linux

package fleettest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
)

// acl holds the secrets of a fleet.
type acl struct {
	root   string // may do everything
	dns    string // may read what Consul's DNS shows
	gossip string
}

func newACL() acl {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return acl{root: newUUID(), dns: newUUID(), gossip: base64.StdEncoding.EncodeToString(key)}
}

func newUUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// policy is a policy that bootstrap-acl prints, in its order.
type policy struct{ Name, Rules string }

const (
	agentPolicy = iota
	operatorPolicy
	orchestratorPolicy
	electorPolicy
	dnsPolicy
)

// bootstrapACL makes the tokens of Consul's own agents, and those of jorc with
// the policies that `jorc cluster bootstrap-acl` makes.
func (f *Fleet) bootstrapACL() error {
	f.Eventually("Consul to have a leader", func(ctx context.Context) error { return f.mayWrite(ctx) })
	read := `node_prefix "" { policy = "read" } service_prefix "" { policy = "read" }`
	if err := f.token(f.acl.dns, policy{"dns", read}); err != nil {
		return err
	}
	return f.each(f.hostMachines(), func(m *Machine) error {
		h := m.owner.(*Host)
		own := policy{"consul-" + h.Name, fmt.Sprintf(`node %q { policy = "write" } service_prefix "" { policy = "read" }`, h.Name)}
		if err := f.token(h.agentToken, own); err != nil {
			return err
		}
		return f.jorcToken(h)
	})
}

// mayWrite writes a key and fails while the Consul servers refuse writes.
func (f *Fleet) mayWrite(ctx context.Context) error {
	return f.API(ctx, http.MethodPut, "/v1/kv/fleettest", "x", nil)
}

// jorcToken makes the policies for a host the way an operator does, by the
// command line with a management token, and the token for its role.
func (f *Fleet) jorcToken(h *Host) error {
	secret := filepath.Join(h.Dir, "root-token")
	if err := os.WriteFile(secret, []byte(f.acl.root), 0o600); err != nil {
		return err
	}
	defer os.Remove(secret)
	env := []string{
		"CONSUL_HTTP_ADDR=https://" + f.Servers[0].IP + ":8501", "CONSUL_CACERT=" + f.tls.File, "CONSUL_HTTP_TOKEN_FILE=" + secret,
		"CONSUL_CLIENT_CERT=" + filepath.Join(h.Dir, "cert.pem"), "CONSUL_CLIENT_KEY=" + filepath.Join(h.Dir, "key.pem"),
	}
	r := h.exec(env, f.jorc, "cluster", "bootstrap-acl", "--elector", "--create", "--node", h.Name, "-o", "json")
	var all []policy
	if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil || len(all) != dnsPolicy+1 {
		return fmt.Errorf("bootstrap-acl exited %d, printed %q and %q: %w", r.Code, r.Stdout, r.Stderr, err)
	}
	which := all[agentPolicy]
	switch {
	case h == f.Operator:
		which = all[operatorPolicy]
	case h.spec.Orchestrator:
		which = all[orchestratorPolicy]
	}
	if err := os.WriteFile(h.tokenFile(), []byte(h.jorcSecret+"\n"), 0o600); err != nil {
		return err
	}
	return f.assign(h.jorcSecret, which.Name, all[electorPolicy].Name) // every member of the fleet may lead
}

// token makes a policy and a token with it.
func (f *Fleet) token(secret string, p policy) error {
	ctx := context.Background()
	if err := f.API(ctx, http.MethodPut, "/v1/acl/policy", p, nil); err != nil {
		return err
	}
	return f.assign(secret, p.Name)
}

func (f *Fleet) assign(secret string, policies ...string) error {
	var names []any
	for _, name := range policies {
		names = append(names, map[string]any{"Name": name})
	}
	token := map[string]any{"SecretID": secret, "Policies": names}
	if err := f.API(context.Background(), http.MethodPut, "/v1/acl/token", token, nil); err != nil {
		return errors.Join(fmt.Errorf("token of policies %v", policies), err)
	}
	return nil
}

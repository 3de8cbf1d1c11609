package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// policiesOf are the names of the policies that bootstrap-acl prints.
func policiesOf(t *testing.T, got result) (names []string) {
	t.Helper()
	var all []struct{ Name string }
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || got.code != 0 {
		t.Fatalf("bootstrap-acl: %+v: %v", got, err)
	}
	for _, p := range all {
		names = append(names, p.Name)
	}
	return names
}

// TestPolicyNames: there is one policy for each kind and host, with a name that says so,
// and a digest where Consul would refuse it.
func TestPolicyNames(t *testing.T) {
	t.Parallel()
	_, env := onShared(t)
	env["JORC_PREFIX"] = "jorc" // nothing is written
	for line, want := range map[string]string{
		"--node web1":                        "jorc-agent-web1 jorc-operator jorc-orchestrator-web1 jorc-elector jorc-dns",
		"--node web1 --cluster prod":         "jorc-agent-web1_prod jorc-operator-prod jorc-orchestrator-web1_prod jorc-elector-prod jorc-dns",
		"--node web1 --prefix x":             "jorc-agent-web1_default_x jorc-operator-default_x jorc-orchestrator-web1_default_x jorc-elector-default_x jorc-dns",
		"--node web_1":                       "jorc-agent-web_1 jorc-operator jorc-orchestrator-web_1 jorc-elector jorc-dns",
		"--node web1.example":                "jorc-agent-web1-example-[0-9a-f]{8} jorc-operator jorc-orchestrator-web1-example-[0-9a-f]{8} jorc-elector jorc-dns",
		"--node " + strings.Repeat("n", 117): "jorc-agent-n{117} jorc-operator jorc-orchestrator-n{101}-[0-9a-f]{8} jorc-elector jorc-dns",
	} {
		args := append([]string{"cluster", "bootstrap-acl", "--elector", "-o", "json"}, strings.Fields(line)...)
		if got := strings.Join(policiesOf(t, jorc(t, env, args...)), " "); !regexp.MustCompile("^" + want + "$").MatchString(got) {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
}

// TestPoliciesAgain: bootstrap-acl repeated changes nothing; policies with the names of
// earlier versions are renamed, and keep their tokens; what is not jorc's stays.
func TestPoliciesAgain(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	env := onServer(t, s)
	env["CONSUL_HTTP_TOKEN"] = s.RootToken
	client := s.Client()
	put := func(name, description, rules string) {
		t.Helper()
		if _, err := client.PutPolicy(t.Context(), &consul.ACLPolicy{Name: name, Description: description, Rules: rules}); err != nil {
			t.Fatal(err)
		}
	}
	rules := func(name string) string {
		t.Helper()
		p, err := client.PolicyByName(t.Context(), name, consul.Query{Consistent: true})
		if err != nil {
			t.Fatal(err)
		}
		if p == nil {
			return ""
		}
		return p.Rules
	}
	sum := sha256.Sum256([]byte("agent\x00jorc\x00default\x00web1"))
	former := fmt.Sprintf("jorc-agent-jorc-default-web1-%x", sum[:4])
	put(former, `jorc: the agent on node web1 of cluster "default"`, `node "web1" { policy = "read" }`)
	token, err := client.CreateToken(t.Context(), "web1", 0, former)
	if err != nil {
		t.Fatal(err)
	}
	bootstrap := func(node string) result {
		t.Helper()
		return jorc(t, env, "cluster", "bootstrap-acl", "--create", "--elector", "--node", node, "-o", "json")
	}
	if got := bootstrap("web1"); strings.Count(got.stderr, "wrote policy") != 5 || got.code != 0 {
		t.Errorf("the first time: %+v", got)
	}
	if rules(former) != "" || !strings.Contains(rules("jorc-agent-web1"), `key "jorc/default/nodes/web1" { policy = "write" }`) {
		t.Errorf("the former policy: %q, the new one: %q", rules(former), rules("jorc-agent-web1"))
	}
	consultest.Eventually(t, "the token of the renamed policy to have its rights", func(ctx context.Context) error {
		allowed, err := s.ClientWithToken(token.SecretID).Authorize(ctx, consul.Right{Resource: "key", Access: "write", Segment: "jorc/default/nodes/web1"})
		if err == nil && !allowed[0] {
			err = errors.New("it may not write")
		}
		return err
	})
	if got := bootstrap("web1"); got.stderr != "" || got.code != 0 {
		t.Errorf("again: %+v, want no change", got)
	}
	if got := bootstrap("web2"); strings.Count(got.stderr, "wrote policy") != 2 {
		t.Errorf("of another host: %+v, want two new policies", got)
	}
	put("jorc-agent-web3", "ours", `node "web3" { policy = "read" }`)
	if got := bootstrap("web3"); got.code != exitConflict || !strings.Contains(got.stderr, `create policy "jorc-agent-web3": it exists with another description: `) {
		t.Errorf("a policy of others: %+v", got)
	}
	if got := rules("jorc-agent-web3"); got != `node "web3" { policy = "read" }` {
		t.Errorf("a policy of others was changed: %s", got)
	}
}

// TestPolicyOfDNS: where Consul denies by default, 'jorc wait' finds services once
// Consul's agent has a token with the policy that bootstrap-acl names for it.
func TestPolicyOfDNS(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	env := onServer(t, s)
	env["CONSUL_HTTP_TOKEN"], env["JORC_DNS_ADDR"] = s.RootToken, s.DNSAddr
	if err := s.Client().RegisterService(t.Context(), &consul.ServiceRegistration{Name: "web", Port: 80}); err != nil {
		t.Fatal(err)
	}
	answersWith := func(secret string) {
		t.Helper()
		url := "http://" + s.HTTPAddr + "/v1/agent/token/dns"
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(`{"Token": "`+secret+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Consul-Token", s.RootToken)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("the agent's token: %s", response.Status)
		}
	}
	answersWith(s.NewToken(`key "x" { policy = "read" }`))
	if got := jorc(t, env, "wait", "web", "--dns-only", "--tries", "1"); got.code != exitTimeout {
		t.Fatalf("without a right: %+v", got)
	}
	if got := jorc(t, env, "cluster", "bootstrap-acl", "--create"); got.code != 0 || !strings.Contains(got.stdout, "consul acl set-agent-token dns") {
		t.Fatalf("bootstrap-acl: %+v", got)
	}
	token, err := s.Client().CreateToken(t.Context(), "dns", 0, "jorc-dns")
	if err != nil {
		t.Fatal(err)
	}
	answersWith(token.SecretID)
	if got := jorc(t, env, "wait", "web", "--dns-only", "--timeout", "0"); got.code != 0 {
		t.Errorf("with the right: %+v", got)
	}
}

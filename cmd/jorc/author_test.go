package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestAuthor: changed documents record who changed them: the ACL token by its
// accessor, the OS user and the host; never the secret.
func TestAuthor(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, acl := range []bool{false, true} {
		s := consultest.Start(t)
		want := "ann@" + host
		if acl {
			s = consultest.Start(t, consultest.WithACL())
		}
		m := newMachine(t, s, "")
		m.env = append(m.env, "USER=ann", "CONSUL_HTTP_TOKEN="+s.RootToken)
		if acl {
			token, err := m.client.OwnToken(t.Context())
			if err != nil || token.AccessorID == "" {
				t.Fatalf("OwnToken = %+v, %v", token, err)
			}
			want = "token " + token.AccessorID + " (" + token.Description + "), " + want
		}
		m.must("cluster", "init", "default")
		if err := m.client.CatalogRegister(t.Context(), &consul.CatalogRegistration{Node: "n1", Address: "192.0.2.1"}); err != nil {
			t.Fatal(err)
		}
		m.must("cluster", "join", "--node", "n1", "--role", "web")
		m.must("cluster", "hold", "--node", "n1", "--reason", "disk")
		m.must("cluster", "pause", "--reason", "lunch")
		m.must("cluster", "run", "hello", "--id", "r1", "--role", "web", "--needs-approval")
		m.must("cluster", "approve", "r1")
		m.must("cluster", "cancel", "r1")
		m.must("update", "trigger", "v1", "--max-parallel", "1")
		m.must("update", "pause", "--reason", "wait")
		call := m.command("cluster", "drpcli")
		call.Stdin = strings.NewReader("4\x00machines\x00workflow\x00n1\x00hello\x00")
		var started struct{ Run string }
		if out, err := call.Output(); err != nil || json.Unmarshal(out, &started) != nil {
			t.Fatalf("with ACLs %v: drpcli machines workflow: %v, %s", acl, err, out)
		}
		for key, n := range map[string]int{
			"runs/" + started.Run + "/spec": 2, "host/n1/hold": 1, "current/control": 1, "current/version": 2, "runs/r1/spec": 6,
		} {
			if got := m.value("jorc/default/" + key); strings.Count(got, want) != n || s.RootToken != "" && strings.Contains(got, s.RootToken) {
				t.Errorf("with ACLs %v: %s: %s does not record %d times %q", acl, key, got, n, want)
			}
		}
		for _, args := range []string{"update show", "update show -o json", "cluster runs -o json", "cluster show -o json"} {
			if got := m.must(strings.Fields(args)...).stdout; !strings.Contains(got, want) {
				t.Errorf("with ACLs %v: jorc %s does not show %q: %s", acl, args, want, got)
			}
		}
		if got := m.run("update", "why", "n1").stdout; !strings.Contains(got, "by "+want+": disk") {
			t.Errorf("with ACLs %v: jorc update why n1: %s", acl, got)
		}
	}
}

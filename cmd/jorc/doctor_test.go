package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// onDoctor is onServer, with DNS and a state directory that is there.
func onDoctor(t *testing.T, s *consultest.Server) map[string]string {
	t.Helper()
	env := onServer(t, s)
	env["JORC_DNS_ADDR"] = s.DNSAddr
	return env
}

var (
	volatile = regexp.MustCompile(`\d+(\.\d+)? (ms|MiB)|"round_trip_ms": [\d.]+`)
	release  = regexp.MustCompile(`\b1\.\d+\.\d+\b`) // of Consul
	milli    = regexp.MustCompile(`(?m)\t[\d.]+$`)
	padding  = regexp.MustCompile(` {2,}`)
)

// wantGolden holds a command's outcome to its golden file, without what differs
// from machine to machine; go test -update writes it.
func wantGolden(t *testing.T, s *consultest.Server, env map[string]string, name string, args ...string) {
	t.Helper()
	got := jorc(t, env, args...)
	text := fmt.Sprintf("$ jorc %s\n%s%s[exit %d]\n", strings.Join(args, " "), got.stdout, got.stderr, got.code)
	text = strings.NewReplacer(s.HTTPAddr, "HTTP", s.DNSAddr, "DNS", s.Node, "NODE", s.IP, "IP", env["JORC_STATE_DIR"], "STATE").Replace(text)
	text = volatile.ReplaceAllStringFunc(text, func(m string) string { return regexp.MustCompile(`[\d.]+`).ReplaceAllString(m, "N") })
	text = release.ReplaceAllString(text, "VERSION")
	text = milli.ReplaceAllString(text, "\tN")
	if strings.Contains(text, "RESULT") || strings.Contains(text, "STATE  ") { // columns are as wide as what was replaced
		text = padding.ReplaceAllString(text, "  ")
	}
	file := filepath.Join("testdata", "doctor", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("%v: run go test ./cmd/jorc -update", err)
		return
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (-want +got); go test ./cmd/jorc -update\n%s", file, diff)
	}
}

func TestPing(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	env := onDoctor(t, s)
	wantGolden(t, s, env, "ping", "ping")
	wantGolden(t, s, env, "ping-json", "ping", "-o", "json")
	wantGolden(t, s, env, "ping-plain", "ping", "-o", "plain")
	env["CONSUL_HTTP_TOKEN"] = ""
	wantGolden(t, s, env, "ping-no-rights", "ping")
	env["CONSUL_HTTP_TOKEN"] = "99999999-0000-0000-0000-000000000000"
	wantGolden(t, s, env, "ping-unknown-token", "ping")
	s.Freeze()
	wantGolden(t, s, env, "ping-frozen", "ping", "--timeout", "100ms")
	s.Thaw()
	s.Stop()
	wantGolden(t, s, env, "ping-stopped", "ping")
	wantGolden(t, s, env, "health-stopped", "health")
	wantGolden(t, s, env, "doctor-stopped", "doctor")
}

func TestHealth(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onDoctor(t, s)
	wantGolden(t, s, env, "health-good", "health")
	wantGolden(t, s, env, "health-good-verbose", "health", "-v")
	wantGolden(t, s, env, "health-good-json", "health", "-o", "json")
	wantGolden(t, s, env, "health-no-such-node", "health", "--node", "nowhere")
	for id, status := range map[string]string{"web": consul.HealthCritical, "db": consul.HealthWarning, "app": consul.HealthPassing} {
		other := consul.HealthCritical // a new output alone reaches the catalog minutes later
		if status == other {
			other = consul.HealthPassing
		}
		err := s.Client().RegisterService(t.Context(), &consul.ServiceRegistration{ID: id + "-1", Name: id, Checks: []*consul.ServiceCheck{
			{CheckID: id, Name: id + " answers", TTL: "1h", Status: other},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Client().UpdateTTL(t.Context(), id, "it is "+status+"\nsecond line", status); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Client().SetMaintenance(t.Context(), "app-1", true, "upgrade"); err != nil {
		t.Fatal(err)
	}
	wantOutputs(t, s, 4)
	wantGolden(t, s, env, "health-bad", "health")
	wantGolden(t, s, env, "health-bad-verbose", "health", "-v")
	wantGolden(t, s, env, "health-bad-plain", "health", "-o", "plain")
	wantGolden(t, s, env, "health-bad-json", "health", "-o", "json")
	env["JORC_NODE"] = s.Node
	wantGolden(t, s, env, "health-named", "health", "-o", "plain")
}

// wantOutputs waits until n checks with an output or notes are in the catalog.
func wantOutputs(t *testing.T, s *consultest.Server, n int) {
	t.Helper()
	c := s.Client()
	consultest.Eventually(t, "the checks in the catalog", func(ctx context.Context) error {
		checks, _, err := c.HealthNode(ctx, s.Node, consul.Query{})
		got := 0
		for _, check := range checks {
			if check.ServiceID != "" && (check.Output != "" || check.Notes != "") {
				got++
			}
		}
		if err == nil && got != n {
			err = fmt.Errorf("%d checks, want %d", got, n)
		}
		return err
	})
}

func TestHealthRights(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	env := onDoctor(t, s)
	env["CONSUL_HTTP_TOKEN"] = ""
	wantGolden(t, s, env, "health-denied", "health")
	wantGolden(t, s, env, "health-hidden", "health", "--node", s.Node)
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onDoctor(t, s)
	wantGolden(t, s, env, "doctor", "doctor")
	wantGolden(t, s, env, "doctor-json", "doctor", "-o", "json")
	s.Freeze()
	defer s.Thaw()
	wantGolden(t, s, env, "doctor-frozen", "doctor", "--timeout", "100ms")
}

func TestDoctorRights(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	env := onDoctor(t, s)
	inState := func(name, content string) string {
		t.Helper()
		path := filepath.Join(env["JORC_STATE_DIR"], name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := inState("jorc.hcl", `
service "web" { port = 80 }
template "up" {
  contents    = "{{ key \"conf/a\" }}"
  destination = "/tmp/up"
}
`)
	token := s.NewToken(`agent_prefix "" { policy = "read" } node_prefix "" { policy = "read" } service "jorc" { policy = "write" }`)
	env["CONSUL_HTTP_TOKEN"] = ""
	env["CONSUL_HTTP_TOKEN_FILE"] = inState("token", token)
	wantGolden(t, s, env, "doctor-rights", "doctor", "--config", config)
	wantGolden(t, s, env, "doctor-bad-config", "doctor", "--config", inState("bad.hcl", `service "web" { prot = 80 }`))
	if got := jorc(t, env, "doctor", "--config", config, "-o", "json"); strings.Contains(got.stdout+got.stderr, token) {
		t.Errorf("the token is told: %+v", got)
	}
	delete(env, "CONSUL_HTTP_TOKEN_FILE")
	wantGolden(t, s, env, "doctor-no-rights", "doctor", "-o", "plain")
	env["CONSUL_HTTP_TOKEN_FILE"] = env["JORC_STATE_DIR"] + "/none"
	wantGolden(t, s, env, "doctor-no-token-file", "doctor", "-o", "plain")
}

func TestDoctorUsage(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"ping x", "health x", "doctor x", "ping --timeout 0s", "health --timeout -1s", "doctor --timeout soon",
		"doctor -o xml", "health -o xml", "ping -o xml",
	} {
		if got := jorc(t, nil, strings.Fields(line)...); got.code != exitUsage || got.stdout != "" || got.stderr == "" {
			t.Errorf("jorc %s: %+v, want exit %d", line, got, exitUsage)
		}
	}
}

//go:build system

package prometheus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// shop serves the error ratio of version v2 as a metric.
func (s *site) shop(ratio *atomic.Value) string {
	s.t.Helper()
	listener, err := net.Listen("tcp", s.servers[0].IP+":0")
	if err != nil {
		s.t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "app_error_ratio{version=\"v2\"} %v\n", ratio.Load())
	})}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	s.t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			s.t.Error(err)
		}
	})
	return listener.Addr().String()
}

// rollout is the answer of 'jorc update show'.
func (s *site) rollout() (answer struct {
	State      string
	Now        struct{ Done int }
	Stopped    struct{ Reason string }
	PassedGate struct{ Answer string } `json:"passed_gate"`
},
) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.run("jorc", "update", "show", "-o", "json")), &answer); err != nil {
		s.t.Fatal(err)
	}
	return answer
}

// TestGate: the gate of gate.hcl keeps a version with too many errors on one host, and lets it
// continue once a real Prometheus says that there are few.
func TestGate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var ratio atomic.Value
	ratio.Store(0.2)
	s.api = "http://" + s.servers[0].IP + ":9090"
	config := s.write("prometheus.yml", fmt.Sprintf(
		"global: {scrape_interval: 1s}\nscrape_configs: [{job_name: shop, static_configs: [{targets: [%q]}]}]\n", s.shop(&ratio)))
	s.run("jorc", "cluster", "init", "prod")
	s.agent(0, "orchestrator { interval = \"1s\" }\n"+strings.ReplaceAll(read(t, "gate.hcl"), "http://127.0.0.1:9090", s.api))
	s.agent(1, "")
	s.agent(2, "")
	s.eventually("three members", func(context.Context) error {
		if out := s.run("jorc", "cluster", "members", "--filter", `Agent == "up"`, "--count"); out != "3" {
			return errors.New(out)
		}
		return nil
	})
	s.run("jorc", "update", "trigger", "v1", "--max-parallel", "3")
	s.run("jorc", "update", "wait")
	s.run("jorc", "update", "trigger", "v2", "--batches", "1,100%", "--max-parallel", "2", "--gate", "error-rate")
	s.eventually("the gate to wait for Prometheus", func(context.Context) error { // which does not run yet
		if out := s.run("jorc", "update", "show"); !strings.Contains(out, "Prometheus does not answer") {
			return errors.New(out)
		}
		return nil
	})
	s.background(s.command(context.WithoutCancel(t.Context()), "prometheus", "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(s.dir, "prometheus"), "--web.listen-address="+strings.TrimPrefix(s.api, "http://"), "--log.level=warn"))
	s.eventually("the gate to fail", func(context.Context) error {
		if r := s.rollout(); r.State != "paused" {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	if r := s.rollout(); r.Now.Done != 1 || !strings.Contains(r.Stopped.Reason, "exit code 1: too many errors") {
		t.Errorf("paused: %+v", r)
	}
	ratio.Store(0.001)
	s.eventually("Prometheus to see few errors", func(ctx context.Context) error { return s.has(ctx, `app_error_ratio{version="v2"} < 0.01`) })
	s.run("jorc", "update", "resume")
	s.run("jorc", "update", "wait")
	if r := s.rollout(); r.State != "done" || r.Now.Done != 3 || r.PassedGate.Answer != "few errors" {
		t.Errorf("at its end: %+v", r)
	}
}

package openapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/slots"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/ui"
	"github.com/jorc/jorc/tools/openapi"
	"github.com/jorc/jorc/tools/openapi/client"
)

var update = flag.Bool("update", false, "write docs/openapi.json and the client")

const root = "../.."

// TestDocument: the file is made from the types of the answers.
func TestDocument(t *testing.T) {
	want, err := openapi.Document(root)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, filepath.Join(root, "docs", "openapi.json"), append(want, '\n'))
}

// TestClientIsCurrent: the client is what oapi-codegen makes of the file.
func TestClientIsCurrent(t *testing.T) {
	command := exec.CommandContext(t.Context(), "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "client", filepath.Join(root, "docs", "openapi.json"))
	var errors bytes.Buffer
	command.Stderr = &errors
	want, err := command.Output()
	if err != nil {
		t.Fatalf("oapi-codegen: %v: %s", err, &errors)
	}
	format := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../lint/go.mod", "gofumpt")
	format.Stdin, format.Stderr = bytes.NewReader(want), &errors
	if want, err = format.Output(); err != nil {
		t.Fatalf("gofumpt: %v: %s", err, &errors)
	}
	compare(t, filepath.Join("client", "client.gen.go"), want)
}

func compare(t *testing.T, file string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not current (%v): 'cd tools/openapi && go test -args -update' writes it", file, err)
	}
}

// dashboard is a cluster in which everything happens that the API tells of, and an HTTP
// client that is logged in.
func dashboard(t *testing.T) (base string, h *http.Client) {
	t.Helper()
	s := consultest.Start(t)
	consulClient, c := s.Client(), fleet.New(s.Client(), "jorc", "default")
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	must(c.Init(ctx, fleet.InitOptions{}))
	must(c.ChangeProfile(ctx, func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		v, err := profile.ParseValue(`{"a":[1,null,"x"]}`)
		if err != nil {
			return d, err
		}
		if d, err = e.Set(d, profile.Scope{}, "shape", v, profile.Ref{}); err != nil {
			return d, err
		}
		rules, err := profile.ParseValue(`[{"name": "nightly", "workflow": "vacuum", "schedule": "@daily"}]`)
		if err != nil {
			return d, err
		}
		return e.Set(d, profile.Scope{}, runs.ParamRules, rules, profile.Ref{})
	}))
	for node, health := range map[string]string{"a": "passing", "b": "critical", "c": "passing"} {
		s.Bystanders(node)
		for _, r := range []*consul.CatalogRegistration{
			{Node: node, Address: "10.0.0.1", NodeMeta: map[string]string{"os": "linux"}, Checks: consul.HealthChecks{{Node: node, CheckID: "serfHealth", Status: "passing"}}},
			{
				Node: node, Address: "10.0.0.1", Service: &consul.AgentService{ID: "jorc", Service: "jorc"},
				Checks: consul.HealthChecks{{Node: node, CheckID: "service:jorc", ServiceID: "jorc", ServiceName: "jorc", Status: "passing"}},
			},
			{
				Node: node, Address: "10.0.0.1", Service: &consul.AgentService{ID: "web", Service: "web"},
				Checks: consul.HealthChecks{{Node: node, CheckID: "service:web", ServiceID: "web", ServiceName: "web", Status: health}},
			},
		} {
			must(nil, consulClient.CatalogRegister(ctx, r))
		}
		must(c.Join(ctx, node, func(r cluster.Record) (cluster.Record, error) {
			r.Roles, r.Zone, r.Provides = []string{"app"}, "z", []string{"web"}
			r.Requires = []cluster.Requirement{{Target: "mysql", Count: 2}}
			return r, nil
		}))
		must(c.ReportVersion(ctx, node, "v1"))
	}
	input := cluster.StageInputs{List: []cluster.StageInput{{Name: "param workers", Digest: "00"}}}
	must(c.ReportWriter("a").Change(ctx, func(r cluster.Report) (cluster.Report, error) {
		r.Stages = map[string]cluster.StageReport{"pool": {Policy: cluster.StagePolicy{MaxParallel: "1"}, Wants: "00", Changed: input}}
		return r, nil
	}))
	stops := stage.Stops{Stops: []stage.Stop{{Node: "a", Grant: "1", Content: "00", Inputs: input, Since: time.Now(), Reason: "its checks failed", Resumed: &cluster.Hold{By: "ann", Since: time.Now()}}}}
	must(kv.NewDoc[stage.Stops](c.Store(), cluster.StageStopsKey("pool"), 1).CompareAndSwap(ctx, kv.Entry[stage.Stops]{}, stops))
	must(c.SetState(ctx, "b", cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateFailed, Detail: "no space left", LogURL: "https://logs.example/1"}))
	rollouts := rollout.New(consulClient, "jorc", "default")
	must(rollouts.Trigger(ctx, rollout.Request{Version: "v0", By: "ann", Policy: func(p *pace.Policy) { p.MaxParallel = pace.Amount{N: 3} }}))
	_, _, err := rollouts.Abort(ctx, rollout.Stop{By: "ann", Reason: "the wrong version", Since: time.Now()})
	must(nil, err)
	run, _, err := runs.New(c.Store()).Ask(ctx, "r1", runs.Request{Workflow: "backup"}, "ann")
	must(run, err)
	ctx = fleet.WithAuthor(ctx, fleet.Author{Command: "jorc cluster hold", Reason: "disks", By: func(context.Context) (string, error) { return "ann", nil }})
	must(c.Hold(ctx, cluster.Scope{Role: "db"}, cluster.Hold{Reason: "disks", By: "ann", Since: time.Now()}))
	held, err := slots.New(c.Store(), slots.Options{}).Acquire(ctx, "edge", 1, slots.Holder{Node: "a"})
	must(held, err)
	o := orchestrator.New(orchestrator.Options{
		Client: consulClient, Prefix: "jorc", Cluster: "default", Node: "a", Grants: true, Interval: time.Second,
	})
	fleets := ui.NewFleets(ui.FleetOptions{Client: consulClient, Prefix: "jorc", Default: "default"})
	server, err := ui.New(ui.Options{Addr: "127.0.0.1:0", Fleets: fleets, Key: true, Log: hclog.NewNullLogger()})
	must(nil, err)
	must(nil, server.Listen(ctx))
	ended := make(chan error, 3)
	for _, run := range []func(context.Context) error{o.Run, fleets.Run, server.Run} {
		go func() { ended <- run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range 3 {
			must(nil, <-ended)
		}
	})
	consultest.Eventually(t, "the rollout that was aborted is in the history", func(ctx context.Context) error {
		_, err := rollouts.RecordOf(ctx, "v0")
		return err
	})
	must(rollouts.Trigger(ctx, rollout.Request{Version: "v2", By: "ann", Policy: func(p *pace.Policy) { p.Canary, p.MaxParallel = 1, pace.Amount{N: 3} }}))
	jar, err := cookiejar.New(nil)
	must(nil, err)
	h = &http.Client{Jar: jar}
	address, err := url.Parse(server.URL())
	must(nil, err)
	base = "http://" + address.Host
	if _, err := h.Get(server.URL()); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "a host works and the run is scheduled", func(ctx context.Context) error {
		for _, path := range []string{"/changes/version.v2?state=working", "/changes/run.r1", "/events"} {
			status, body := get(t, h, base+"/v1/fleet/clusters/default"+path)
			if status != http.StatusOK || strings.Contains(body, `"matched":0`) || strings.Contains(body, `"last":0`) {
				return fmt.Errorf("%s: %d %s", path, status, body)
			}
		}
		return nil
	})
	return base, h
}

func get(t *testing.T, h *http.Client, address string) (int, string) {
	t.Helper()
	answer, err := h.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestAPI(t *testing.T) {
	base, h := dashboard(t)
	t.Run("answers", func(t *testing.T) { testAnswers(t, base, h) })
	t.Run("client", func(t *testing.T) { testClient(t, base, h) })
}

// testAnswers: every answer of every path is as the file describes it, with no field
// that the file does not know.
func testAnswers(t *testing.T, base string, h *http.Client) {
	d, err := openapi3.NewLoader().LoadFromFile(filepath.Join(root, "docs", "openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	no := false
	for _, schema := range d.Components.Schemas {
		if schema.Value.AdditionalProperties.Schema == nil {
			schema.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: &no}
		}
	}
	d.Servers = openapi3.Servers{{URL: base}}
	router, err := legacy.NewRouter(d)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{"{cluster}": "default", "{host}": "b", "{service}": "web", "{change}": "version.v2"}
	for path := range d.Paths.Map() {
		for name, value := range values {
			path = strings.ReplaceAll(path, name, value)
		}
		if strings.HasSuffix(path, "/stream") {
			continue
		}
		validate(t, router, h, base+path, http.StatusOK)
	}
	one := base + "/v1/fleet/clusters/default"
	for _, query := range []string{
		"/hosts?filter=Health+%3D%3D+critical&sort=-Zone&columns=Params,NodeMeta,Status.config&limit=1", "/hosts?role=nothing", "/changes/version.v2?state=failed&limit=1",
		"/changes/version.v0", "/changes/files.pool?limit=1", "/changes/run.r1", "/audit?limit=1",
		"/events?kind=member_joined,node_up&limit=2&after=1", "/profile?values=true", "/profile/history?values=true&limit=2", "/changes?kind=run&state=ended", "/services?offset=1&limit=1", "/targets?port=9100", "/hosts/a",
	} {
		validate(t, router, h, one+query, http.StatusOK)
	}
	validate(t, router, h, one+"/hosts?sort=nothing", http.StatusBadRequest)
	validate(t, router, h, one+"/hosts/nothing", http.StatusNotFound)
	validate(t, router, http.DefaultClient, one+"/hosts", http.StatusUnauthorized)
}

func validate(t *testing.T, router routers.Router, h *http.Client, address string, want int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	route, params, err := router.FindRoute(r)
	if err != nil {
		t.Errorf("%s: %v", address, err)
		return
	}
	answer, err := h.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != want {
		t.Errorf("%s: %d %s; want %d", address, answer.StatusCode, body, want)
	}
	options := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}
	asked := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: options}
	if want == http.StatusOK {
		if err := openapi3filter.ValidateRequest(t.Context(), asked); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	err = openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: asked, Status: answer.StatusCode, Header: answer.Header, Body: io.NopCloser(bytes.NewReader(body)), Options: options,
	})
	if err != nil {
		t.Errorf("%s: %v\n%s", address, err, body)
	}
}

// testClient: the generated client reads the fleet.
func testClient(t *testing.T, base string, h *http.Client) {
	c, err := client.NewClientWithResponses(base, client.WithHTTPClient(h))
	if err != nil {
		t.Fatal(err)
	}
	filter, limit := `Health == "critical"`, 5
	hosts, err := c.ListHostsWithResponse(t.Context(), "default", &client.ListHostsParams{Filter: &filter, Limit: &limit})
	if err != nil || hosts.JSON200 == nil || len(hosts.JSON200.Hosts) != 1 || hosts.JSON200.Hosts[0].Node != "b" || hosts.JSON200.Total != 3 {
		t.Errorf("hosts: %+v, %v", hosts, err)
	}
	r, err := c.GetChangeWithResponse(t.Context(), "default", "version.v2", nil)
	if err != nil || r.JSON200 == nil || r.JSON200.Version == nil || r.JSON200.Version.Desired != "v2" || len(r.JSON200.Hosts) != 3 || r.JSON200.Counts.Members != 3 {
		t.Errorf("rollout: %+v, %v", r, err)
	}
	stages, err := c.GetChangeWithResponse(t.Context(), "default", "files.pool", nil)
	if err != nil || stages.JSON200 == nil || stages.JSON200.Files == nil || stages.JSON200.Files.Status == nil || len(stages.JSON200.Files.Status.Stops) != 1 || len(stages.JSON200.Hosts) != 1 {
		t.Errorf("stage: %+v, %v", stages, err)
	}
	audit, err := c.ListAuditWithResponse(t.Context(), "default", nil)
	if err != nil || audit.JSON200 == nil || len(audit.JSON200.Changes) == 0 {
		t.Errorf("audit: %+v, %v", audit, err)
	}
	changes, err := c.ListChangesWithResponse(t.Context(), "default", nil)
	if err != nil || changes.JSON200 == nil || len(changes.JSON200.Changes) < 3 || len(changes.JSON200.Schedules) != 1 {
		t.Errorf("changes: %+v, %v", changes, err)
	}
	host, err := c.GetHostWithResponse(t.Context(), "default", "b")
	if err != nil || host.JSON200 == nil || len(host.JSON200.States) == 0 {
		t.Errorf("host: %+v, %v", host, err)
	}
	missing, err := c.GetHostWithResponse(t.Context(), "default", "nothing")
	if err != nil || missing.JSONDefault == nil || missing.JSONDefault.Error == "" || missing.StatusCode() != http.StatusNotFound {
		t.Errorf("missing host: %+v, %v", missing, err)
	}
	stream, err := c.GetStream(t.Context(), "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	head := make([]byte, 6)
	if _, err := io.ReadFull(stream.Body, head); err != nil || string(head) != "retry:" || stream.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("stream: %q, %v", head, err)
	}
	var clusters ui.Clusters
	_, body := get(t, h, base+"/v1/fleet/clusters")
	if err := json.Unmarshal([]byte(body), &clusters); err != nil || len(clusters.Clusters) != 1 {
		t.Errorf("clusters: %s, %v", body, err)
	}
}

package pages_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/ui"
	"github.com/jorc/jorc/internal/ui/pages"
	"github.com/jorc/jorc/internal/ui/uitest"
)

// readAll are the rules of a viewer who may see the cluster "prod".
const readAll = `key_prefix "jorc/prod/" { policy = "read" } node_prefix "" { policy = "read" } service_prefix "" { policy = "read" } `

// denial is one rule that denies something, and what must not be seen for that.
type denial struct {
	rule  string
	asked string // the path of Consul's own API that has it
	// right is named in every answer.
	right string
	// hidden are texts that no answer has but as a part of the name of the right.
	hidden []string
	// refused are the paths that answer 403; nil: all do.
	refused []string
}

// TestLongerDenials: what a rule denies that is longer than the one that lets a viewer see the
// cluster is in no page, in no answer of the API and in no stream, as in Consul's own answers;
// each of them names the right that is missing.
func TestLongerDenials(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	f := &site{Cluster: uitest.New(t, s, s.Client(), "prod"), t: t, name: "prod"}
	for _, h := range []uitest.Host{
		{Name: "one", Role: "web", Service: "web", Check: "passing"},
		{Name: "two", Role: "web", Service: "web", Check: "passing"},
		{Name: "three", Role: "db", Service: "mysql", Check: "critical"},
	} {
		h.Gossip = true
		f.JoinHost(h)
	}
	two, three := f.Node("two"), f.Node("three")
	put := func(key, value string) {
		t.Helper()
		f.Must(nil, f.Client.KVPut(t.Context(), &consul.KVPair{Key: f.Store().Path(key), Value: []byte(value)}))
	}
	f.Must(f.ReportVersion(t.Context(), two, "v-of-two"))
	f.Must(f.SetState(t.Context(), two, cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateFailed, Detail: "detail-of-two"}))
	_, _, err := runs.New(f.Store()).Ask(t.Context(), "r1", runs.Request{Workflow: "reindex"}, "ann")
	f.Must(nil, err)
	put("runs/r1/members", fmt.Sprintf(`{"format":1,"nodes":[%q,%q]}`, f.Node("one"), two))
	put("runs/r1/tails/"+two, "output-of-two")
	put("slots/group/disks", `{"format":1,"max":7}`)
	put("host/"+two+"/results", `{"format":1,"jobs":[]}`)
	put("history/rollouts/"+finishedID, `{"id":"`+finishedID+`","version":"v0","outcome":"done","started":"2026-01-02T03:04:05Z","finished":"2026-01-02T03:05:05Z","hosts":[{"node":"`+two+`","state":"failed"}]}`)
	f.Orchestrate("one")
	f.Stage("two", "pool", "param workers")
	f.FailStage("two", "pool", "reason-of-stop", "param workers")
	put("host/"+two+"/hold", `{"format":1,"since":"2026-01-02T03:04:05Z","reason":"hold-of-two"}`)
	f.Stage("one", "pool", "param workers")

	fleets := f.Run(ui.FleetOptions{Client: f.Client, Prefix: "jorc", Default: "prod"})
	address := serveTeam(t, fleets, ui.Options{Consul: s.Config()})
	q := url.QueryEscape
	api := "/v1/fleet/clusters/prod"
	paths := []string{
		"/", "/changes", "/change?id=version." + finishedID, "/hosts", "/host?name=" + q(two), "/host?name=" + q(f.Node("one")), "/host?name=" + q(three), "/events", "/services",
		"/service?name=web-prod", "/service?name=mysql-prod", "/dependencies", "/change?id=run.r1", "/change?id=files.pool", "/slots", "/audit", "/leaders",
		api, api + "/attention", api + "/changes", api + "/changes/version." + finishedID, api + "/hosts", api + "/hosts?columns=Status,Services,Version", api + "/hosts/" + two, api + "/hosts/" + f.Node("one"), api + "/hosts/" + three,
		api + "/targets", api + "/events?limit=1000", api + "/services", api + "/services/web-prod", api + "/services/mysql-prod", api + "/dependencies", api + "/changes/run.r1",
		api + "/changes/files.pool", api + "/slots", api + "/audit", api + "/leaders", api + "/profile", api + "/stream",
	}
	refusedHost := []string{"/host?name=" + q(two), api + "/hosts/" + two}
	ofHost := func(rule, key string, more ...string) denial {
		return denial{
			rule + ` "jorc/prod/` + key + `" { policy = "deny" }`, "/v1/kv/jorc/prod/" + strings.TrimSuffix(key, "/") + "?recurse", `key:read on "jorc/prod/` + key,
			append([]string{two, "v-of-two", "detail-of-two", "hold-of-two", "output-of-two", "reason-of-stop", "rack-two"}, more...), refusedHost,
		}
	}
	refusedRun := []string{"/change?id=run.r1", api + "/changes/run.r1"}
	refusedStage := []string{"/change?id=files.pool", api + "/changes/files.pool"}
	denials := []denial{
		ofHost("key", "nodes/"+two), ofHost("key_prefix", "nodes/"+two), ofHost("key_prefix", "host/"+two+"/"), ofHost("key", "host/"+two+"/member"),
		ofHost("key", "host/"+two+"/hold"), ofHost("key", "host/"+two+"/results"),
		{`node "` + two + `" { policy = "deny" }`, "/v1/catalog/nodes", `node:read on "` + two, []string{two, "v-of-two", "detail-of-two", "rack-two", "hold-of-two"}, refusedHost},
		{`node_prefix "` + two + `" { policy = "deny" }`, "/v1/catalog/nodes", `node:read on "` + two, []string{two, "v-of-two", "rack-two"}, refusedHost},
		{`service "mysql-prod" { policy = "deny" }`, "/v1/catalog/services", `service:read on "mysql-prod`, []string{"mysql-prod"}, []string{"/service?name=mysql-prod", api + "/services/mysql-prod"}},
		{`service_prefix "mysql" { policy = "deny" }`, "/v1/health/state/any", `service:read on "mysql-prod`, []string{"mysql-prod"}, []string{"/service?name=mysql-prod", api + "/services/mysql-prod"}},
		{`key "jorc/prod/runs/r1/tails/` + two + `" { policy = "deny" }`, "/v1/kv/jorc/prod/runs/r1/tails/" + two + "?raw", `key:read on "jorc/prod/runs/r1/tails/` + two, []string{"output-of-two"}, []string{}},
		{`key_prefix "jorc/prod/runs/r1/tails/" { policy = "deny" }`, "/v1/kv/jorc/prod/runs/r1/tails/" + two + "?raw", `key:read on "jorc/prod/runs/r1/tails/` + two, []string{"output-of-two"}, []string{}},
		{`key "jorc/prod/runs/r1/spec" { policy = "deny" }`, "/v1/kv/jorc/prod/runs/r1/spec?raw", `key:read on "jorc/prod/runs/r1/spec`, []string{"reindex"}, refusedRun},
		{`key_prefix "jorc/prod/runs/r1/" { policy = "deny" }`, "/v1/kv/jorc/prod/runs/r1/spec?raw", `key:read on "jorc/prod/runs/r1/`, []string{"reindex"}, refusedRun},
		{`key "jorc/prod/stages/pool/stops" { policy = "deny" }`, "/v1/kv/jorc/prod/stages/pool/stops?raw", `key:read on "jorc/prod/stages/pool/stops`, []string{"reason-of-stop"}, refusedStage},
		{`key "jorc/prod/slots/group/disks" { policy = "deny" }`, "/v1/kv/jorc/prod/slots/?recurse", `key:read on "jorc/prod/slots/group/disks`, []string{"disks"}, []string{}},
	}
	for _, whole := range []string{"current/leaders", "current/layout", "profile", "view/commit", "orchestrate/lock", "history/rollouts/" + finishedID} {
		denials = append(denials, denial{
			`key "jorc/prod/` + whole + `" { policy = "deny" }`, "/v1/kv/jorc/prod/" + whole + "?recurse", `key:read on`, []string{f.Node("one"), two, "v-of-two"}, nil,
		})
	}
	denials = append(denials, denial{
		`key_prefix "jorc/prod/events/batch/" { policy = "deny" }`, "/v1/kv/jorc/prod/events/batch/?recurse", `jorc/prod/events/batch/`, []string{f.Node("one"), two}, nil,
	}, denial{
		`service "jorc" { policy = "deny" }`, "/v1/health/service/jorc", `service:read on "jorc`, []string{f.Node("one"), two}, nil,
	})

	sees := s.NewToken(readAll)
	consultest.Eventually(t, "all is shown to a viewer who may see it", func(context.Context) error {
		var all strings.Builder
		for _, path := range paths {
			status, body := ask(t, address, sees, path)
			if status != http.StatusOK {
				return fmt.Errorf("%s: %d %s", path, status, body)
			}
			all.WriteString(body)
		}
		for _, d := range denials {
			for _, text := range d.hidden {
				if !strings.Contains(all.String(), text) {
					return fmt.Errorf("nothing shows %q", text)
				}
			}
		}
		return nil
	})
	for _, d := range denials {
		token := s.NewToken(readAll + d.rule)
		if with, without := consulAnswer(t, s, s.RootToken, d.asked), consulAnswer(t, s, token, d.asked); with == without {
			t.Errorf("%s: Consul denies nothing of %s: %s", d.rule, d.asked, without)
		}
		for _, path := range paths {
			status, body := ask(t, address, token, path)
			want := http.StatusOK
			if d.refused == nil || strings.Contains("\n"+strings.Join(d.refused, "\n")+"\n", "\n"+path+"\n") {
				want = http.StatusForbidden
			}
			if status != want {
				t.Errorf("%s, %s: %d; want %d", d.rule, path, status, want)
			}
			plain := strings.NewReplacer(`\"`, `"`, "&#34;", `"`).Replace(body)
			targets := strings.HasSuffix(path, "/targets") || strings.HasSuffix(path, "/stream")
			if !targets && !strings.Contains(plain, d.right) {
				t.Errorf("%s, %s does not name the right %s", d.rule, path, d.right)
			}
			// What a refusal names is what was asked for, and the right.
			rest := withoutRights(plain)
			if status == http.StatusForbidden {
				continue
			}
			for _, text := range d.hidden {
				if i := strings.Index(rest, text); i >= 0 {
					t.Errorf("%s, %s shows %q: %s", d.rule, path, text, rest[max(0, i-200):min(len(rest), i+200)])
				}
			}
		}
		var clusters ui.Clusters
		if status, body := ask(t, address, token, "/v1/fleet/clusters"); status == http.StatusOK {
			f.Must(nil, json.Unmarshal([]byte(body), &clusters))
		}
		for _, path := range d.refused {
			if _, body := ask(t, address, token, path); strings.Contains(withoutRights(body), "v-of-two") || strings.Contains(body, "reason-of-stop") {
				t.Errorf("%s, %s: %s", d.rule, path, body)
			}
		}
	}

	// What is counted is counted without the host, and the health of a host is not shown
	// that has a service which is hidden.
	var o ui.Overview
	_, body := ask(t, address, s.NewToken(readAll+`node "`+two+`" { policy = "deny" }`), api)
	f.Must(nil, json.Unmarshal([]byte(body), &o))
	if o.Counts.Nodes != 2 || o.Counts.Versions["v-of-two"] != 0 || o.Counts.Zones["rack-two"] != 0 {
		t.Errorf("counts: %s", body)
	}
	var h ui.Host
	_, body = ask(t, address, s.NewToken(readAll+`service "mysql-prod" { policy = "deny" }`), api+"/hosts/"+three)
	f.Must(nil, json.Unmarshal([]byte(body), &h))
	if h.Health != "" || len(h.Failing) > 0 || h.Liveness != "up" {
		t.Errorf("host: %s", body)
	}
}

// TestDeniedLater: what is created under a rule that denies it is not shown to a viewer whose
// rights are known already.
func TestDeniedLater(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	f := &site{Cluster: uitest.New(t, s, s.Client(), "prod"), t: t, name: "prod"}
	f.JoinHost(uitest.Host{Name: "one", Role: "web", Service: "web", Check: "passing"})
	fleets := f.Run(ui.FleetOptions{Client: f.Client, Prefix: "jorc", Default: "prod"})
	address := serveTeam(t, fleets, ui.Options{Consul: s.Config()})
	two := f.Node("two")
	sees, denied := s.NewToken(readAll), s.NewToken(readAll+`key "jorc/prod/nodes/`+two+`" { policy = "deny" }`)
	const hosts = "/v1/fleet/clusters/prod/hosts"
	for _, token := range []string{sees, denied} {
		if status, body := ask(t, address, token, hosts); status != http.StatusOK || !strings.Contains(body, f.Node("one")) {
			t.Fatalf("%d %s", status, body)
		}
	}
	f.JoinHost(uitest.Host{Name: "two", Role: "web", Service: "web", Check: "passing"})
	f.Must(f.ReportVersion(t.Context(), two, "v-of-two"))
	consultest.Eventually(t, "the new host is shown", func(context.Context) error {
		if _, body := ask(t, address, denied, hosts); strings.Contains(body, "v-of-two") {
			t.Fatalf("the new host is shown: %s", body)
		}
		if _, body := ask(t, address, sees, hosts); !strings.Contains(body, "v-of-two") {
			return fmt.Errorf("it is not: %s", body)
		}
		return nil
	})
	if _, body := ask(t, address, denied, hosts); strings.Contains(body, "v-of-two") || !strings.Contains(body, "jorc/prod/nodes/"+two) {
		t.Errorf("the new host: %s", body)
	}
}

// TestUnknownAssets: a path below /assets/ that does not exist answers 404 to every client.
func TestUnknownAssets(t *testing.T) {
	t.Parallel()
	server, name := consultest.Shared(t)
	f := &site{Cluster: uitest.New(t, server, server.Client(), name), t: t, name: name}
	address := serveTeam(t, f.Run(ui.FleetOptions{Client: f.Client, Prefix: "jorc", Default: name}), ui.Options{Consul: server.Config()})
	for _, path := range []string{"/assets/", "/assets/x", "/assets/x/y", "/assets/x/y/z"} {
		if status, body := ask(t, address, "", path); status != http.StatusNotFound || body == "" {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
}

// withoutRights is a text without the rights that it names.
func withoutRights(text string) string {
	for _, kind := range []string{"key:read on ", "node:read on ", "service:read on "} {
		for {
			before, after, found := strings.Cut(text, kind+`"`)
			if !found {
				break
			}
			_, after, _ = strings.Cut(after, `"`)
			text = before + after
		}
	}
	return text
}

// serveTeam serves a fleet to a team until the test ends, and returns the address.
func serveTeam(t testing.TB, fleets *ui.Fleets, o ui.Options) string {
	t.Helper()
	viewer := func(r *http.Request) *ui.Viewer { return ui.ViewerOf(r.Context()) }
	site := pages.New(pages.Options{
		Fleet:    func(r *http.Request, name string) (*ui.Fleet, error) { return viewer(r).Fleet(r.Context(), name) },
		Clusters: func(r *http.Request) (ui.Clusters, error) { return viewer(r).Clusters(r.Context()) },
		LogsOut:  func(r *http.Request) bool { return viewer(r).LogsOut },
	})
	o.Addr, o.Fleets, o.Log = "127.0.0.1:0", fleets, hclog.NewNullLogger()
	o.Pages = ui.Pages{Handler: site, Assets: site, Refused: func(w http.ResponseWriter, _ *http.Request, r ui.Refusal) { site.Refuse(w, r.Status, r.Why, r.Login) }}
	server, err := ui.New(o)
	if err == nil {
		err = server.Listen(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return strings.TrimSuffix(server.URL(), "/")
}

// ask asks for a path with a token. Of a stream it reads all events that there were, up to the
// first change.
func ask(t testing.TB, address, token, path string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("Last-Event-ID", "0")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	var body strings.Builder
	for lines := bufio.NewScanner(answer.Body); lines.Scan() && lines.Text() != "event: change"; {
		body.WriteString(lines.Text() + "\n")
	}
	return answer.StatusCode, body.String()
}

// consulAnswer is Consul's own answer to a token.
func consulAnswer(t testing.TB, s *consultest.Server, token, path string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.HTTPAddr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Consul-Token", token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status + " " + string(body)
}

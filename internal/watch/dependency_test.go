package watch

import (
	"context"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"
	ct "github.com/hashicorp/consul-template/template"

	"github.com/jorc/jorc/internal/config"
)

func TestQueriesMeanWhatConsulTemplateTakesThemFor(t *testing.T) {
	t.Parallel()
	type query struct {
		kind    kind
		text    string
		id      string // as consul-template has it
		name    string
		tag     string
		filters string
		dc      string
		near    string
		scope   scope
	}
	for _, tt := range []query{
		{kindKey, "a/b", "kv.get(a/b)", "a/b", "", "", "", "", scope{}},
		{kindKey, "/a/b", "kv.get(a/b)", "a/b", "", "", "", "", scope{}},
		{kindKey, "//a", "kv.get(/a)", "a", "", "", "", "", scope{}},
		{kindKey, "a b%#ü:=|~@dc-2", "kv.get(a b%#ü:=|~@dc-2)", "a b%#ü:=|~", "", "", "dc-2", "", scope{datacenter: "dc-2"}},
		{kindKey, "a?ns=n&partition=p@dc2", "kv.get(a@dc2@partition=p@ns=n)", "a", "", "", "dc2", "", scope{datacenter: "dc2", namespace: "n", partition: "p"}},
		{kindPrefix, "a/", "kv.list(a/)", "a/", "", "", "", "", scope{}},
		{kindPrefix, "/a@dc2", "kv.list(a@dc2)", "a", "", "", "dc2", "", scope{datacenter: "dc2"}},
		{kindService, "web", "health.service(web|passing)", "web", "", "passing", "", "", scope{}},
		{kindService, "v1.web", "health.service(v1.web|passing)", "web", "v1", "passing", "", "", scope{}},
		{kindService, "v1.2.3.web", "health.service(v1.2.3.web|passing)", "web", "v1.2.3", "passing", "", "", scope{}},
		{kindService, "a=b:c.web@dc2~_agent|any", "health.service(a=b:c.web@dc2~_agent|any)", "web", "a=b:c", "any", "dc2", "_agent", scope{datacenter: "dc2"}},
		{kindService, "web|warning,passing", "health.service(web|passing,warning)", "web", "", "passing,warning", "", "", scope{}},
		{kindService, "web|passing,", "health.service(web|passing)", "web", "", "passing", "", "", scope{}},
		{kindService, "web|critical,maintenance", "health.service(web|critical,maintenance)", "web", "", "critical,maintenance", "", "", scope{}},
		{kindService, "web?peer=p&ns=n", "health.service(web@ns=n@peer=p|passing)", "web", "", "passing", "", "", scope{peer: "p", namespace: "n"}},
		{kindService, "web?sameness-group=g", "health.service(web@sameness-group=g|passing)", "web", "", "passing", "", "", scope{samenessGroup: "g"}},
		{kindService, "web~near-node", "health.service(web~near-node|passing)", "web", "", "passing", "", "near-node", scope{}},
		{kindConnect, "web|any", "health.connect(web|any)", "web", "", "any", "", "", scope{}},
		{kindNode, "n.example-1@dc2", "catalog.node(n.example-1@dc2)", "n.example-1", "", "", "dc2", "", scope{datacenter: "dc2"}},
		{kindNode, "", "catalog.node", "", "", "", "", "", scope{}},
		{kindNodes, "@dc2~_agent", "catalog.nodes(@dc2~_agent)", "", "", "", "dc2", "_agent", scope{datacenter: "dc2"}},
		{kindNodes, "", "catalog.nodes", "", "", "", "", "", scope{}},
		{kindServices, "@dc2", "catalog.services(@dc2)", "", "", "", "dc2", "", scope{datacenter: "dc2"}},
		{kindServices, "?ns=n", "catalog.services(@ns=n)", "", "", "", "", "", scope{namespace: "n"}},
	} {
		q, re, err := parseQuery(tt.kind, tt.text)
		if err != nil {
			t.Errorf("%s %q: %v", tt.kind, tt.text, err)
			continue
		}
		d := newDependency(tt.kind, q, re, tt.text)
		got := query{tt.kind, tt.text, d.id, d.name, d.tag, strings.Join(d.filters, ","), d.scope.datacenter, d.near, d.scope}
		if got != tt || d.id != q.String() {
			t.Errorf("%s %q = %+v; want %+v", tt.kind, tt.text, got, tt)
		}
	}
}

func parseQuery(k kind, text string) (dep.Dependency, *regexp.Regexp, error) {
	switch k {
	case kindKey:
		q, err := dep.NewKVGetQuery(text)
		return q, dep.KVGetQueryRe, err
	case kindPrefix:
		q, err := dep.NewKVListQuery(text)
		return q, dep.KVListQueryRe, err
	case kindService:
		q, err := dep.NewHealthServiceQuery(text)
		return q, dep.HealthServiceQueryRe, err
	case kindConnect:
		q, err := dep.NewHealthConnectQuery(text)
		return q, dep.HealthServiceQueryRe, err
	case kindNode:
		q, err := dep.NewCatalogNodeQuery(text)
		return q, dep.CatalogNodeQueryRe, err
	case kindNodes:
		q, err := dep.NewCatalogNodesQuery(text)
		return q, dep.CatalogNodesQueryRe, err
	}
	q, err := dep.NewCatalogServicesQuery(text)
	return q, dep.CatalogServicesQueryRe, err
}

// FuzzDependency: whatever consul-template accepts can be taken apart and asks
// for the same thing.
func FuzzDependency(f *testing.F) {
	for _, text := range []string{"a", "tag.web@dc|any", "a?ns=x@dc", "/a/", "web~_agent|passing,warning", "@dc", "?partition=p"} {
		for i := range uint8(7) {
			f.Add(text, i)
		}
	}
	kinds := []kind{kindKey, kindPrefix, kindService, kindConnect, kindNode, kindNodes, kindServices}
	f.Fuzz(func(t *testing.T, text string, i uint8) {
		k := kinds[int(i)%len(kinds)]
		q, re, err := parseQuery(k, text)
		if err != nil {
			return
		}
		d := newDependency(k, q, re, text)
		if d.id != q.String() || d.String() == "" {
			t.Errorf("%s %q: id %q; want %q", k, text, d.id, q.String())
		}
	})
}

// theirs executes a template with consul-template's own code.
func theirs(t *testing.T, text string) (string, error) {
	t.Helper()
	tm, err := ct.NewTemplate(&ct.NewTemplateInput{Contents: text})
	if err != nil {
		t.Fatal(err)
	}
	r, err := tm.Execute(&ct.ExecuteInput{Brain: ct.NewBrain()})
	if err != nil {
		return "", err
	}
	return string(r.Output), nil
}

func ours(t *testing.T, text string, v view) rendering {
	t.Helper()
	o := options{
		TemplateOptions: config.TemplateOptions{RenderTimeout: time.Minute, MaxOutput: 1 << 20, AllowEnv: []string{"SEEN_*"}},
		LookupEnv: func(name string) (string, bool) {
			if name == "SEEN_NOT" {
				return "", false
			}
			return "value of " + name, true
		},
	}
	src, err := load(&config.Template{Name: "t", Contents: text}, &o)
	if err != nil {
		t.Fatal(err)
	}
	return src.execute(context.Background(), v)
}

func TestLoopIsConsulTemplates(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{{ range loop 3 }}{{ . }},{{ end }}`, `{{ range $i := loop 1 4 }}{{ $i }},{{ end }}`, `{{ range loop 0 }}x{{ else }}none{{ end }}`,
		`{{ range loop "2" }}{{ . }}{{ end }}`, `{{ range loop 5 "7" }}{{ . }}{{ end }}`, `{{ range loop 3 1 }}x{{ end }}`,
		`{{ range loop -2 1 }}{{ . }}{{ end }}`, `{{ range loop (3 | add 1) }}{{ . }}{{ end }}`, `{{ range loop 3 }}{{ if eq . 1 }}{{ break }}{{ end }}{{ . }}{{ end }}`,
		`{{ range loop 2 }}{{ range loop 2 }}{{ . }}{{ end }};{{ end }}`, `{{ range $i := loop 3 }}{{ printf "%T %d" $i $i }}{{ end }}`,
		`{{ range loop 1.5 }}{{ end }}`, `{{ range loop "x" }}{{ end }}`, `{{ range loop }}{{ end }}`, `{{ range loop 1 2 3 }}{{ end }}`,
	} {
		want, err := theirs(t, text)
		r := ours(t, text, fixed{})
		if string(r.output) != want || (err == nil) != (r.err == nil) {
			t.Errorf("%s = %q, %v; consul-template has %q, %v", text, r.output, r.err, want, err)
		}
	}
}

func TestFunctionsThatReachOut(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{{ env "SEEN_A" }}`: "value of SEEN_A", `{{ env "HOME" }}`: "", `{{ env "SEEN_NOT" }}`: "",
		`{{ envOrDefault "HOME" "d" }}`: "d", `{{ envOrDefault "SEEN_A" "d" }}`: "value of SEEN_A", `{{ mustEnv "SEEN_A" }}`: "value of SEEN_A",
		`{{ mustEnv "HOME" }}`: "error: allow_env", `{{ plugin "true" }}`: "error: allow_functions", `{{ "x" | writeToFile "/tmp/x" "" "" "0644" }}`: "error: give the file a template of its own",
		`{{ nomadService "x" }}`: "error: Nomad", `{{ caLeaf "" }}{{ secret }}`: "<no value><no value>", `{{ node "-" | toJSON }}`: "missing",
		`{{ key "" }}{{ keyExists "" }}{{ keyOrDefault "" "d" }}{{ len (ls "") }}{{ len (service "") }}{{ file "" }}`: "falsed00",
		`{{ key "a@b@c" }}`: "error: format", `{{ service "a b" }}`: "error: format", `{{ service "a|bad" }}`: "error: filter",
	} {
		r := ours(t, text, fixed{})
		got := string(r.output)
		switch {
		case r.err != nil:
			got = "error: " + r.err.Error()
		case len(r.missing) > 0:
			got = "missing"
		}
		if after, ok := strings.CutPrefix(want, "error: "); ok && r.err != nil && strings.Contains(got, after) {
			continue
		}
		if got != want {
			t.Errorf("%s = %q; want %q", text, got, want)
		}
	}
}

func TestExecutionSaysWhatItUses(t *testing.T) {
	t.Parallel()
	text := `{{ (index (service "web") 0).Port }}{{ key "a" }}{{ keyOrDefault "b" "x" }}{{ range service (key "name") }}{{ end }}`
	r := ours(t, text, fixed{})
	if r.err != nil || len(r.missing) != 1 || r.used["health.service(web|passing)"] == nil {
		t.Errorf("without data: %v, missing %v; want to wait for web", r.err, r.missing)
	}
	data := fixed{"health.service(web|passing)": []*dep.HealthService{{Port: 80}}, "kv.get(a)": "A", "kv.get(b)": nil, "kv.get(name)": nil}
	r = ours(t, text, data)
	if r.err != nil || !reflect.DeepEqual(r.missing, map[string]string{"kv.get(name)": "does not exist"}) {
		t.Errorf("without a name: %v, missing %v", r.err, r.missing)
	}
	data["kv.get(name)"], data["health.service(db|passing)"] = "db", []*dep.HealthService{}
	r = ours(t, text, data)
	if r.err != nil || len(r.missing) > 0 || string(r.output) != "80Ax" || len(r.used) != 5 {
		t.Errorf("with all data: %q, %v, missing %v, used %v", r.output, r.err, r.missing, r.used)
	}
	data["health.service(web|passing)"] = []*dep.HealthService{}
	if r = ours(t, text, data); r.err == nil || len(r.missing) > 0 {
		t.Errorf("with an empty service: %v, missing %v; want the error of index", r.err, r.missing)
	}
}

package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/quick"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

var update = flag.Bool("update", false, "write the golden files")

// sample has the special cases of exports: several interfaces, automatic tagged
// addresses, no port, IPv6, odd names, jorc's own keys in Meta.
func sample() *Snapshot {
	node := func(name, address string) *consul.Node {
		return &consul.Node{Node: name, Address: address, Datacenter: "dc1"}
	}
	s := &Snapshot{Services: []string{"consul", "db", "none", "odd name\n#", "web"}}
	for _, e := range []struct {
		node *consul.Node
		s    *consul.AgentService
	}{
		{node("s1", "10.0.0.1"), &consul.AgentService{ID: "consul", Service: "consul", Port: 8300}},
		{node("n1", "10.0.0.10"), &consul.AgentService{ID: "db", Service: "db", Port: 5432, TaggedAddresses: map[string]consul.ServiceAddress{
			"eth0": {Address: "10.0.0.10", Port: 5432}, "eth1": {Address: "10.1.0.10", Port: 5432},
		}}},
		{node("n2", "10.0.0.9"), &consul.AgentService{ID: "db", Service: "db", Port: 5432, TaggedAddresses: map[string]consul.ServiceAddress{
			"eth0": {Address: "10.0.0.9", Port: 5432},
		}}},
		{node("n2", "10.0.0.9"), &consul.AgentService{ID: "odd", Service: "odd name\n#", Meta: map[string]string{"a:b": "'#"}}},
		{node("n1", "10.0.0.10"), &consul.AgentService{
			ID: "web-1", Service: "web", Port: 80, Address: "10.0.0.11", Tags: []string{"b", "a"},
			Meta: map[string]string{"version": "1.2", "k8s.io/x": "y", MetaOwner: "me", MetaHash: "x"},
			TaggedAddresses: map[string]consul.ServiceAddress{
				"lan_ipv4": {Address: "10.0.0.11", Port: 80}, "wan_ipv4": {Address: "10.0.0.11", Port: 80},
				"virtual": {Address: "240.0.0.1"}, "consul-virtual:x": {Address: "240.0.0.2"},
			},
		}},
		{node("n2", "10.0.0.9"), &consul.AgentService{ID: "web-2", Service: "web", Port: 80, Address: "fd00::1"}},
		{node("n2", "10.0.0.9"), &consul.AgentService{ID: "web-3", Service: "web", Address: "web.example.com"}},
	} {
		s.Instances = append(s.Instances, newInstance(e.node, e.s, consul.HealthPassing))
	}
	return s
}

func TestExportFormats(t *testing.T) {
	t.Parallel()
	for _, format := range ExportFormats() {
		got, _, err := Export(sample(), format)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", "export."+format)
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s differs from %s (-want +got); go test -update writes it\n%s", format, file, diff)
		}
	}
	if _, _, err := Export(sample(), "xml"); err == nil {
		t.Error("an unknown format is no error")
	}
}

// TestExportsOfAnyNames: with any names, exports can be parsed and no line is
// forged.
func TestExportsOfAnyNames(t *testing.T) {
	t.Parallel()
	check := func(service, node, address, key, value string) bool {
		i := newInstance(&consul.Node{Node: node, Address: "10.0.0.1", Datacenter: "dc1"}, &consul.AgentService{
			Service: service, Address: address, Port: 1, Meta: map[string]string{key: value},
		}, consul.HealthPassing)
		s := &Snapshot{Services: []string{service}, Instances: []ServiceInstance{i}}
		for _, format := range ExportFormats() {
			data, _, err := Export(s, format)
			if err != nil {
				t.Errorf("%s: %v", format, err)
			}
			switch format {
			case FormatHiera:
				var got map[string][]string
				if err := yaml.Unmarshal(data, &got); err != nil || len(got) != 1 {
					t.Errorf("hiera %q: %v", data, err)
				}
			case FormatHosts:
				if n := strings.Count(string(data), "\n"); n > 1 || strings.ContainsAny(string(data), "#\r") {
					t.Errorf("hosts %q", data)
				}
			default:
				if !json.Valid(data) {
					t.Errorf("%s: %s", format, data)
				}
			}
		}
		return !t.Failed()
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

func TestWriteExportLeavesTheSameAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "services.yaml")
	stat := func() os.FileInfo {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	for _, step := range []struct {
		data    string
		changed bool
	}{{"a", true}, {"a", false}, {"b", true}} {
		changed, _, err := WriteExport(path, []byte(step.data))
		if err != nil || changed != step.changed {
			t.Errorf("%s: changed %v, %v; want %v", step.data, changed, err, step.changed)
		}
		if step.data == "a" {
			if err := os.Chmod(path, 0o640); err != nil {
				t.Fatal(err)
			}
		}
	}
	if mode := stat().Mode().Perm(); mode != 0o640 {
		t.Errorf("mode %o, want 640", mode)
	}
	if _, _, err := WriteExport(filepath.Join(path, "below"), nil); err == nil {
		t.Error("no error for a directory that is none")
	}
}

func TestFetchListAndResolve(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c := s.Client()
	for i, state := range []string{consul.HealthPassing, consul.HealthWarning, consul.HealthCritical} {
		for range 2 { // web has instances 0, 1 and 2; 0 and 2 have the tag even
			tags := []string{"even", "odd"}[i%2 : i%2+1]
			if err := c.RegisterService(t.Context(), &consul.ServiceRegistration{
				ID: fmt.Sprintf("web-%d", i), Name: "web", Port: 80 + i, Tags: tags, Address: "10.0.0." + fmt.Sprint(i+1),
				Checks: []*consul.ServiceCheck{{TTL: "1h", Status: state}},
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.RegisterService(t.Context(), &consul.ServiceRegistration{ID: "a/b c", Name: "a/b c", Port: 1}); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "the catalog", func(ctx context.Context) error {
		got, _, err := List(ctx, c, consul.Query{})
		want := []ServiceSummary{
			{Service: "a/b c", Instances: 1, Passing: 1, Tags: []string{}},
			{Service: "consul", Instances: 1, Passing: 1, Tags: []string{}},
			{Service: "web", Instances: 3, Passing: 1, Warning: 1, Critical: 1, Tags: []string{"even", "odd"}},
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			err = fmt.Errorf("got %+v, want %+v", got, want)
		}
		return err
	})
	snap, err := Fetch(t.Context(), c, Functional, consul.Query{})
	if err != nil || len(snap.Services) != 3 || len(snap.Instances) != 4 {
		t.Fatalf("%+v, %v", snap, err)
	}
	data, _, err := Export(snap, FormatHiera)
	want := "---\nservices::a/b c::lan:\n  - " + s.IP + "\nservices::consul::lan:\n  - " + s.IP + "\nservices::web::lan:\n  - 10.0.0.1\n  - 10.0.0.2\n"
	if err != nil || string(data) != want {
		t.Errorf("hiera: %s, %v; want %s", data, err, want)
	}
	node, err := ListNode(t.Context(), c, s.Node, consul.Query{})
	var states []string
	for _, i := range node {
		states = append(states, i.ID+" "+i.Status)
	}
	if want := []string{"a/b c passing", "consul passing", "web-0 passing", "web-1 warning", "web-2 critical"}; err != nil || !slices.Equal(states, want) {
		t.Errorf("node: %v, %v; want %v", states, err, want)
	}
	if _, err := ListNode(t.Context(), c, "nobody", consul.Query{}); !errors.Is(err, consul.ErrNotFound) {
		t.Errorf("unknown node: %v", err)
	}
	for _, tc := range []struct {
		name, tag string
		ports     []int
	}{{"web", "", []int{80, 81}}, {"web", "even", []int{80}}, {"web", "none", nil}, {"nothing", "", nil}} {
		got, err := Resolve(t.Context(), c, tc.name, tc.tag, Functional, consul.Query{})
		var ports []int
		for _, i := range got {
			ports = append(ports, i.Port)
		}
		if !slices.Equal(ports, tc.ports) || errors.Is(err, consul.ErrNotFound) != (tc.ports == nil) {
			t.Errorf("%s %s: %v, %v; want %v", tc.name, tc.tag, ports, err, tc.ports)
		}
	}
}

func TestPartlyVisibleCatalogsAreNotExported(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	if err := s.Client().RegisterService(t.Context(), &consul.ServiceRegistration{ID: "web", Name: "web"}); err != nil {
		t.Fatal(err)
	}
	all := `service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }`
	for _, tc := range []struct {
		rules string
		want  error
	}{
		{`service "web" { policy = "read" } node_prefix "" { policy = "read" }`, consul.ErrDenied},
		{`service_prefix "" { policy = "read" }`, consul.ErrDenied},
		{`key "x" { policy = "read" }`, consul.ErrDenied},
		{all, nil},
	} {
		c := s.ClientWithToken(s.NewToken(tc.rules))
		if _, err := Fetch(t.Context(), c, Functional, consul.Query{}); !errors.Is(err, tc.want) {
			t.Errorf("fetch with %s: %v, want %v", tc.rules, err, tc.want)
		}
	}
	if _, err := Fetch(t.Context(), s.ClientWithToken(""), Functional, consul.Query{}); !errors.Is(err, consul.ErrDenied) {
		t.Errorf("fetch without a token: %v, want %v", err, consul.ErrDenied)
	}
	c := s.ClientWithToken(s.NewToken(`service "db" { policy = "read" } node_prefix "" { policy = "read" }`))
	if _, err := Resolve(t.Context(), c, "web", "", Functional, consul.Query{}); !errors.Is(err, consul.ErrDenied) {
		t.Errorf("resolve what may not be seen: %v, want %v", err, consul.ErrDenied)
	}
	if _, err := Resolve(t.Context(), c, "db", "", Functional, consul.Query{}); !errors.Is(err, consul.ErrNotFound) {
		t.Errorf("resolve what is not there: %v, want %v", err, consul.ErrNotFound)
	}
}

// TestOneOddNameDoesNotSpoilTheExport: Consul registers names that its API
// cannot read.
func TestOneOddNameDoesNotSpoilTheExport(t *testing.T) {
	t.Parallel()
	client := consultest.Start(t).Client()
	odd := []string{"..", "../x", ".", "a/../b", "line\u2028end", "no\u00a0break", "two\nlines"}
	for _, name := range append([]string{"web"}, odd...) {
		err := client.CatalogRegister(t.Context(), &consul.CatalogRegistration{
			Node: "n", Address: "10.0.0.1", SkipNodeUpdate: name != "web",
			Service: &consul.AgentService{ID: name, Service: name, Port: 80},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := Fetch(t.Context(), client, Functional, consul.Query{})
	if err != nil || !slices.Contains(s.Services, "web") {
		t.Fatalf("Fetch = %+v, %v; want web", s, err)
	}
	slices.Sort(odd)
	if !slices.Equal(s.LeftOut, odd) {
		t.Errorf("left out are %q; want %q", s.LeftOut, odd)
	}
}

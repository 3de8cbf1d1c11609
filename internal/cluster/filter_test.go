package cluster_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
)

func member(t testing.TB) *cluster.Member {
	return &cluster.Member{
		Node: "db-1", Address: "10.0.0.5", Datacenter: "dc1", Zone: "rack-7", Roles: []string{"db", "worker"},
		Params: clustertest.Params(t, `{"cluster/db": true, "disks": 4, "ratio": 0.5, "big": 123456789012345678901, "path": "/etc/foo",
			"null": null, "empty": "", "list": ["a", 1], "none": [], "deep": {"er": {"x": "y"}}, "no": false}`),
		Meta: clustertest.Params(t, `{"icon": "db"}`), NodeMeta: map[string]string{"os": "linux"}, Services: []string{"mysql"}, Workflows: []string{"backup"},
		Version: "v1.2", Status: map[string]string{"config": "success"}, Health: "passing", Agent: "up",
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	m := member(t)
	for _, test := range []struct {
		expr string
		want bool
	}{
		{"", true},
		{"  ", true},
		{`Node == "db-1"`, true},
		{`Node == db`, false},
		{`Node != "db-1"`, false},
		{`Node matches "^db-[0-9]+$"`, true},
		{`Node not matches "^web"`, true},
		{`Node contains "b-"`, true},
		{`"b-" in Node`, true},
		{`"db" in Roles`, true},
		{`Roles contains "db"`, true},
		{`"web" not in Roles`, true},
		{`Workflows contains "backup"`, true},
		{`"vacuum" in Workflows or Workflows is nil`, false},
		{`Roles is not empty and Services is not empty`, true},
		{`Zone == "rack-7" and (Health == "passing" or Health == "warning")`, true},
		{`not Zone == "rack-7"`, false},
		{`not (Zone == "a" or Zone == "b")`, true},
		{`Params["disks"] == 4`, true},
		{`Params["disks"] == 4.0`, true},
		{`Params["disks"] == "4"`, true},
		{`Params["disks"] != 5`, true},
		{`Params.disks == 4`, true},
		{`Params["big"] == 123456789012345678901`, true},
		{`Params["big"] == 123456789012345678902`, false},
		{`Params["ratio"] == 0.50`, true},
		{`Params["cluster/db"] == true`, true},
		{`"/Params/cluster~1db" == true`, true},
		{`Params["path"] == "/etc/foo"`, true},
		{`"/etc/foo" in Params["path"]`, true},
		{"Params[\"path\"] == `/etc/foo`", true},
		{`Params["list"] contains "a"`, true},
		{`1 in Params["list"]`, true},
		{`Params["none"] is empty`, true},
		{`Params["list"] == "a"`, false},
		{`Params["deep"]["er"]["x"] == "y"`, true},
		{`Params.deep.er.x == "y"`, true},
		{`Params["no"] == false`, true},
		{`"disks" in Params`, true},
		{`"other" in Params`, false},
		{`NodeMeta["os"] == "linux" and Meta.icon == "db"`, true},
		{`Status["config"] == "success"`, true},
		{`any Roles as r { r == "db" }`, true},
		{`all Roles as r { r == "db" }`, false},
		{`any Status as k, v { k == "config" and v == "success" }`, true},
		{`any Params["list"] as x { x == 1 }`, true},
		// What is missing is false or empty, and no error.
		{`Params["cluster/leader"] != true`, true},
		{`Params["cluster/leader"] == true`, false},
		{`Params["cluster/leader"] == false`, true},
		{`Params["gone"] == ""`, true},
		{`Params["gone"] == "x"`, false},
		{`Params["gone"] is empty`, true},
		{`Params["gone"]["below"] is empty`, true},
		{`Params["null"] == false`, true},
		{`Params["null"] is nil`, true},
		{`Params["gone"] == 0`, false},
		{`"x" in Params["gone"]`, false},
		{`Params["gone"] not contains "x"`, true},
		{`Params["gone"] matches "^$"`, true},
		{`Status["puppet"] != "failed"`, true},
		{`NodeMeta["gone"] == ""`, true},
		{`Params["disks"]["below"] == 1`, false},
	} {
		f, err := cluster.ParseFilter(test.expr)
		if err != nil {
			t.Errorf("ParseFilter(%s): %v", test.expr, err)
			continue
		}
		if got := f.Match(m); got != test.want {
			t.Errorf("%s: got %v, want %v", test.expr, got, test.want)
		}
	}
}

// TestFilterErrors: errors name the column of what is wrong.
func TestFilterErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		expr   string
		column int
		want   string
	}{
		{`Nod == "a"`, 1, `there is no field "Nod"`},
		{`Zone == "a" and Colour == "b"`, 17, `no field "Colour"`},
		{`Zone = "a"`, 6, "not understood"},
		{`Zone == `, 9, "not understood"},
		{`Zone == "a" and`, 16, "not understood"},
		{`(Zone == "a"`, 13, "unmatched parentheses"},
		{`Zone == "a`, 11, "unterminated string"},
		{`Roles == "db"`, 1, `"db" in Roles`},
		{`Params == 4`, 1, "many values"},
		{`Node.x == "a"`, 1, "nothing below"},
		{`Zone == "é" and Bad == 1`, 17, `no field "Bad"`},
		{`Node matches "(["`, 14, "missing closing"},
		{`any Roles as r { s == "db" }`, 18, `no field "s"`},
		{strings.Repeat("(", 30) + `Zone == "a"` + strings.Repeat(")", 30), 7, "nested"},
		{strings.Repeat(`Zone == "a" or `, 250) + `Zone == "b"`, 3762, "more than 200 comparisons"},
		{`Zone == "` + strings.Repeat("x", 5000) + `"`, 4097, "longer than 4096"},
		{"Zone == \"\xff\"", 1, "UTF-8"},
	} {
		_, err := cluster.ParseFilter(test.expr)
		var at *cluster.FilterError
		if !errors.As(err, &at) || !errors.Is(err, cluster.ErrInvalid) {
			t.Errorf("ParseFilter(%.60s) = %v, want a FilterError", test.expr, err)
			continue
		}
		if at.Column != test.column || !strings.Contains(err.Error(), test.want) {
			t.Errorf("ParseFilter(%.60s): column %d: %v; want column %d and %q", test.expr, at.Column, err, test.column, test.want)
		}
	}
}

// FuzzParseFilter: nothing panics or takes for ever, and an
// expression and its contrary never agree.
func FuzzParseFilter(f *testing.F) {
	for _, seed := range []string{`Zone == "a" and not ("b" in Roles)`, `any Params["x"] as k, v { v == 1 }`, `Params["/a~1"] is empty`, `((((`} {
		f.Add(seed)
	}
	m := member(f)
	f.Fuzz(func(t *testing.T, expr string) {
		filter, err := cluster.ParseFilter(expr)
		if err != nil {
			if !errors.Is(err, cluster.ErrInvalid) || strings.Contains(err.Error(), "\n") {
				t.Errorf("ParseFilter(%q) = %v", expr, err)
			}
			return
		}
		if not, err := cluster.ParseFilter("not (" + expr + ")"); err == nil && filter.Match(m) == not.Match(m) {
			t.Errorf("%q and its contrary are both %v", expr, filter.Match(m))
		}
	})
}

// BenchmarkFilter filters 5,000 members; the target for reading and filtering
// them is 250 ms.
func BenchmarkFilter(b *testing.B) {
	all := make([]*cluster.Member, 5000)
	for i := range all {
		all[i] = member(b)
		all[i].Zone = fmt.Sprintf("rack-%d", i%50)
	}
	for b.Loop() {
		f, err := cluster.ParseFilter(`Zone == "rack-7" and "db" in Roles and Params["cluster/leader"] != true and Params["disks"] == 4`)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for _, m := range all {
			if f.Match(m) {
				n++
			}
		}
		if n != 100 {
			b.Fatalf("%d members match, want 100", n)
		}
	}
}

// TestFilterWorkflows: workflows that are unknown differ from none.
func TestFilterWorkflows(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		workflows []string
		want      string
	}{
		{nil, "unknown empty"},
		{[]string{}, "empty"},
		{[]string{"a"}, "defined"},
		{[]string{"b"}, ""},
	} {
		m, got := &cluster.Member{Workflows: test.workflows}, []string{}
		for name, expr := range map[string]string{"unknown": "Workflows is nil", "empty": "Workflows is empty", "defined": `"a" in Workflows`} {
			f, err := cluster.ParseFilter(expr)
			if err != nil {
				t.Fatal(err)
			}
			if f.Match(m) {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		slices.Reverse(got)
		if strings.Join(got, " ") != test.want {
			t.Errorf("%v: got %v, want %s", test.workflows, got, test.want)
		}
	}
}

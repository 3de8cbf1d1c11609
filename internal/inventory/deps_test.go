package inventory_test

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/inventory"
)

// hosts describes a member as "name: provides a b, requires c d=2/addressable".
func hosts(lines ...string) []cluster.Member {
	var all []cluster.Member
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, ":")
		m := cluster.Member{Node: name}
		provides, requires, _ := strings.Cut(rest, ">")
		m.Provides = strings.Fields(provides)
		for _, r := range strings.Fields(requires) {
			target, mode, _ := strings.Cut(r, "/")
			q := cluster.Requirement{Target: target, For: mode}
			if base, _, two := strings.Cut(target, "=2"); two {
				q.Target, q.Count = base, 2
			}
			m.Requires = append(m.Requires, q)
		}
		all = append(all, m)
	}
	return all
}

func TestDependencies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		members []cluster.Member
		cycles  []string
		stuck   []string
	}{
		{"none", hosts("a:web > db", "b:db"), nil, nil},
		{"two", hosts("a:web > db", "b:db > web"), []string{"a -[db]-> b -[web]-> a"}, []string{"a", "b"}},
		{"three", hosts("c:z > x", "a:x > y", "b:y > z"), []string{"a -[y]-> b -[z]-> c -[x]-> a"}, []string{"a", "b", "c"}},
		{"itself", hosts("a:db > db"), []string{"a -[db]-> a"}, []string{"a"}},
		{"behind one", hosts("a:x > y", "b:y > x", "c: > x"), []string{"a -[y]-> b -[x]-> a"}, []string{"a", "b", "c"}},
		{"another provider breaks it", hosts("a:web > db", "b:db > web", "c:db"), nil, nil},
		{"not for two", hosts("a:web > db=2", "b:db > web", "c:db"), []string{"a -[db]-> b -[web]-> a"}, []string{"a", "b"}},
		{"addressable blocks nobody", hosts("a:web > db/addressable", "b:db > web"), nil, nil},
		{"reachable blocks", hosts("a:web > db/reachable", "b:db > web"), []string{"a -[db]-> b -[web]-> a"}, []string{"a", "b"}},
		{"from elsewhere", hosts("a:web > ldap", "b: > tag.web@dc2"), nil, nil},
		{"tags", hosts("a:web > master.db", "b:db > web"), []string{"a -[db]-> b -[web]-> a"}, []string{"a", "b"}},
	} {
		g := inventory.Dependencies(test.members)
		var got []string
		for _, c := range g.Cycles {
			got = append(got, g.CycleText(c))
		}
		if !slices.Equal(got, test.cycles) || len(test.stuck) != len(g.Stuck) {
			t.Errorf("%s: cycles %q, stuck %q; want %q, %q", test.name, got, g.Stuck, test.cycles, test.stuck)
		}
	}
}

func TestDependencyFormats(t *testing.T) {
	t.Parallel()
	g := inventory.Dependencies(hosts(`a"<b>:web > db`, "b:db > web ldap", "c: > db/addressable"))
	for _, format := range inventory.Formats() {
		text, err := g.Write(format)
		if err != nil || !strings.Contains(text, "ldap") || !strings.Contains(text, "db") {
			t.Errorf("%s: %v\n%s", format, err, text)
		}
		if format == inventory.SVG {
			d := xml.NewDecoder(strings.NewReader(text))
			for err == nil {
				_, err = d.Token()
			}
			if !errors.Is(err, io.EOF) {
				t.Errorf("the SVG is no XML: %v\n%s", err, text)
			}
		}
	}
	dot, err := g.Write(inventory.DOT)
	want := `"member a\"<b>" -> "member b" [label="db", color=red];`
	if err != nil || !strings.Contains(dot, want) {
		t.Errorf("DOT (%v) lacks %s:\n%s", err, want, dot)
	}
	if _, err := g.Write("png"); !errors.Is(err, cluster.ErrInvalid) {
		t.Errorf("png: %v", err)
	}
}

// TestHostileDrawings: names that hosts choose stay text in DOT, Mermaid and SVG.
func TestHostileDrawings(t *testing.T) {
	t.Parallel()
	const evil = "a]\x1b\"<script>`%%{init: {}}%%\\"
	g := inventory.Graph{
		Nodes: []string{evil}, Services: map[string][]string{},
		Edges: []inventory.Edge{{Node: evil, Service: evil, External: true}},
	}
	for format, want := range map[string]string{
		inventory.DOT:     `"service a]` + "\x1b" + `\"<script>` + "`" + `%%{init: {}}%%\\" [label=`,
		inventory.Mermaid: `(["a]` + "\x1b" + `#quot;#lt;script#gt;#96;#37;#37;{init: {}}#37;#37;\"])`,
		inventory.SVG:     "<title>a] &#34;&lt;script&gt;`%%{init: {}}%%\\</title>",
	} {
		got, err := g.Write(format)
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("%s (%v) lacks %s:\n%s", format, err, want, got)
		}
	}
}

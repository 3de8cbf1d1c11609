package cluster_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
)

// row is one line of a table: its cells by column.
type row map[string]string

// tables returns the tables of a page, by heading; a heading with two has their
// rows under its name and under its name with a star.
func tables(t *testing.T, file string) map[string][]row {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]row{}
	heading, columns := "", []string(nil)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "#"):
			heading, columns = strings.TrimSpace(strings.TrimLeft(line, "#")), nil
		case !strings.HasPrefix(line, "|"):
			if columns != nil {
				heading, columns = heading+"*", nil
			}
		case columns == nil:
			columns = cells(line)
		case strings.HasPrefix(line, "|---"):
		default:
			r := row{}
			for i, cell := range cells(line) {
				r[columns[i]] = cell
			}
			all[heading] = append(all[heading], r)
		}
	}
	return all
}

func cells(line string) []string {
	parts := strings.Split(strings.Trim(line, "|"), "|")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// find returns what the first row that matches facts says in column; used gets
// the number of that row.
func find(t *testing.T, table []row, column string, facts row, used map[int]bool) string {
	t.Helper()
	for i, r := range table {
		matches := true
		for name, fact := range facts {
			cell, given := r[name]
			if given && cell != "any" && !slices.Contains(strings.Split(cell, ", "), fact) {
				matches = false
			}
		}
		if matches {
			used[i] = true
			return strings.TrimPrefix(r[column], "–")
		}
	}
	t.Fatalf("no row of the table for %q matches %v", column, facts)
	return ""
}

// TestLivenessTable: for every combination of facts the function answers what
// docs/liveness.md says, and every row of its tables is needed.
func TestLivenessTable(t *testing.T) {
	t.Parallel()
	doc := tables(t, "../../docs/liveness.md")
	used := map[string]map[int]bool{}
	want := func(heading, column string, facts row) string {
		t.Helper()
		if used[heading] == nil {
			used[heading] = map[int]bool{}
		}
		return find(t, doc[heading], column, facts, used[heading])
	}
	combinations(map[string][]string{
		"catalog": {"yes", "no"}, "gossip": {"none", "passing", "failing"}, "own check": {"none", "passing", "failing"},
		"probe": {"none", "pending", "answered", "failed"}, "before": {"none", "up", "suspect", "down"},
		"checks": {"passing", "warning", "critical"}, "maintenance": {"none", "own", "foreign"}, "grant": {"none", "open"},
	}, func(facts row) {
		s := cluster.Signals{
			Cataloged: facts["catalog"] == "yes", Gossip: cluster.Signal(facts["gossip"]), Agent: cluster.Signal(facts["own check"]),
			Probe: cluster.Probe(facts["probe"]), Maintenance: cluster.Maintenance(facts["maintenance"]), Checks: facts["checks"],
		}
		if facts["before"] != "none" {
			s.Before = cluster.Liveness(facts["before"])
		}
		c := cluster.Assess(s)
		got := row{}
		check := func(heading, column, is string) {
			t.Helper()
			seen := maps.Clone(facts)
			maps.Copy(seen, got)
			if should := want(heading, column, seen); is != should {
				t.Errorf("%v: %s is %q, the table says %q", seen, column, is, should)
			}
			got[column] = is
		}
		check("Liveness of the host", "liveness", string(c.Liveness))
		check("The jorc agent", "agent", c.Agent)
		check("Health", "health", c.Health)
		got["maintenance"] = string(c.Maintenance)
		check("Out of service", "out of service", string(c.OutOfService(facts["grant"] == "open")))
		check("Out of service*", "fails as a leader", map[bool]string{true: "yes", false: "no"}[c.Fails()])
		if detached := c.Liveness == cluster.LivenessDown || c.Liveness == cluster.LivenessAbsent; c.Detached() != detached {
			t.Errorf("%v: Detached() = %v", facts, c.Detached())
		}
	})
	for heading, rows := range used {
		for i := range doc[heading] {
			if !rows[i] {
				t.Errorf("row %d of the table %q never counts: %v", i+1, heading, doc[heading][i])
			}
		}
	}
}

// combinations calls do with every combination of values.
func combinations(values map[string][]string, do func(row)) {
	names := slices.Sorted(maps.Keys(values))
	var add func(i int, facts row)
	add = func(i int, facts row) {
		if i == len(names) {
			do(facts)
			return
		}
		for _, v := range values[names[i]] {
			facts[names[i]] = v
			add(i+1, facts)
		}
	}
	add(0, row{})
}

// Package jorc_test holds the house to its plan (docs/ARCHITECTURE.md): which package
// may import which, and what only main may do.
package jorc_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/jorc/jorc/"

// floors gives each package its floor: one above the highest from which it and its tests import. A package
// imports only from lower ones, never from its own.
var floors = map[string]int{
	"cmd/jorc":              15,
	"internal/dev":          14, // an agent and what it needs to be tried out
	"internal/legacy":       14, // what only old systems need
	"internal/agent":        13,
	"internal/ui/pages":     13, // its HTML
	"internal/diagnostics":  12, // an archive for a bug report
	"internal/ui":           12, // the fleet on a screen: views, API, server
	"internal/orchestrator": 11,
	"internal/budget":       10, // who is out of service for changes of all kinds
	"internal/control":      10, // how commands of a host ask its agent for a lease
	"internal/fleetlock":    10, // how other programs do
	"internal/converge":     9,
	"internal/doctor":       9, // from the table of keys; and whether a rollout can progress
	"internal/lease":        9, // a host that asks to be out of service
	"internal/runs":         9, // runs hosts' workflows, with the limits of rollouts
	"internal/rollout":      8,
	"internal/stage":        8, // new content of files, with the amounts and the order of rollouts
	"internal/workflow":     8,
	"internal/inventory":    7, // members for Ansible and for people
	"internal/leaders":      7, // who leads
	"internal/change":       7, // how changes reach hosts: offers, answers, the ledger
	"templates":             7, // files that ship; workflow takes them in, and their tests render them with watch
	"internal/fleet":        6, // reads, watches and writes what cluster is the model of
	"internal/blocker":      5,
	"internal/cluster":      5,
	"internal/fixture":      5, // tests of templates without Consul
	"internal/slots":        5,
	"internal/catalog":      4,
	"internal/kv":           4,
	"internal/watch":        4,
	"internal/consul":       3,
	"internal/expiry":       3,
	"internal/migrate":      3, // other tools' configuration; its tests load the result
	"internal/supervise":    3,
	"internal/config":       2,
	"internal/replace":      2,
	"internal/command":      1,
	"internal/filewatch":    1,
	"internal/pace":         1, // who is out of service, and who may be
	"internal/profile":      1,
	"internal/schedule":     1,
	"internal/terminal":     1,
	"internal/web":          1,
	"internal/concurrency":  0,
	"internal/durable":      0,
	"internal/event":        0,
	"internal/licenses":     0,
	"internal/metrics":      0,
	"internal/templatetree": 0,
	"internal/text":         0,
}

// beside are packages that stand outside the house; only tests and other
// packages of this list import them.
var beside = []string{"internal/consultest", "internal/consultest/gossip", "internal/clustertest", "internal/configtest", "internal/consulmodel", "internal/crashtest", "internal/fleettest", "internal/leasetest", "internal/raced", "internal/recorded", "internal/ui/uitest", "internal/vaulttest", "fleet", "sim", "bench", "demo", "deploy/examples", "deploy/packages", "deploy/prometheus"}

// owners are the only packages that import a library, or anything below it.
var owners = map[string][]string{
	"github.com/hashicorp/consul/api":      {"internal/consul"},
	"github.com/hashicorp/consul-template": {"internal/watch"},
	"github.com/miekg/dns":                 {"internal/catalog"},
	"github.com/urfave/cli/v2":             {"cmd/jorc", "internal/legacy"},
}

// oracles are packages whose tests compare with a library that they do not import
// themselves.
var oracles = map[string]string{"internal/migrate": "github.com/hashicorp/consul-template"}

// onlyMain are functions that end the process, handle its signals or write past
// the caller's writers. Lower packages get a context and writers.
var onlyMain = []string{
	"os.Exit", "os.Stdout", "os.Stdin", "os.Stderr", "log.Fatal", "log.Fatalf", "log.Fatalln",
	"signal.Notify", "signal.NotifyContext", "signal.Ignore",
	"fmt.Print", "fmt.Printf", "fmt.Println",
}

type source struct {
	path string // slash separated, from the repository's root
	dir  string
	test bool
	ast  *ast.File
	fset *token.FileSet
}

func (s source) position(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(n.Pos()).Line)
}

// sources are all Go files of the module, whatever their build tags.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := parsedOnce()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// parsedOnce parses the files for all tests together.
var parsedOnce = sync.OnceValues(func() (all []source, err error) {
	fset := token.NewFileSet()
	err = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"testdata", "tools", "bin", "dist"}, name) ||
			name != "." && strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		parsed, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		slash := filepath.ToSlash(name)
		all = append(all, source{slash, path.Dir(slash), strings.HasSuffix(name, "_test.go"), parsed, fset})
		return nil
	})
	return all, err
})

func importPath(spec *ast.ImportSpec) string {
	name, _ := strconv.Unquote(spec.Path.Value)
	return name
}

// TestImportsGoDown: a file imports only packages of lower floors; tests may
// also use what stands beside the house.
func TestImportsGoDown(t *testing.T) {
	for _, s := range sources(t) {
		outside := slices.Contains(beside, s.dir)
		floor, known := floors[s.dir]
		if !known && !outside && s.dir != "." {
			t.Errorf("%s: package %s has no floor: give it one in arch_test.go and docs/ARCHITECTURE.md", s.path, s.dir)
			continue
		}
		for _, spec := range s.ast.Imports {
			to, ours := strings.CutPrefix(importPath(spec), module)
			if !ours || to == s.dir || outside || s.dir == "." {
				continue
			}
			if slices.Contains(beside, to) {
				if !s.test {
					t.Errorf("%s: %s is for tests only", s.position(spec), to)
				}
				continue
			}
			if floors[to] >= floor {
				t.Errorf("%s: %s (floor %d) imports %s (floor %d)", s.position(spec), s.dir, floor, to, floors[to])
			}
		}
	}
}

// TestLibrariesHaveOneOwner: one package speaks to each library; the others use
// that package.
func TestLibrariesHaveOneOwner(t *testing.T) {
	for _, s := range sources(t) {
		if slices.Contains(beside, s.dir) {
			continue
		}
		for _, spec := range s.ast.Imports {
			for library, allowed := range owners {
				name := importPath(spec)
				within := name == library || strings.HasPrefix(name, library+"/")
				if within && !slices.Contains(allowed, s.dir) && !(s.test && oracles[s.dir] == library) {
					t.Errorf("%s: only %s imports %s", s.position(spec), strings.Join(allowed, ", "), name)
				}
			}
		}
	}
}

// TestOnlyMain: nothing below main ends the process, handles its signals or
// writes to its standard streams.
func TestOnlyMain(t *testing.T) {
	for _, s := range sources(t) {
		main := path.Base(s.path) == "main.go" || path.Base(s.path) == "main_windows.go" // which has no exec(2)
		if s.test || main && s.ast.Name.Name == "main" || s.dir == "bench" {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := selector.X.(*ast.Ident); ok {
				if name := pkg.Name + "." + selector.Sel.Name; slices.Contains(onlyMain, name) {
					t.Errorf("%s: %s belongs to main", s.position(selector), name)
				}
			}
			return true
		})
	}
}

// livenessFacts are what only internal/cluster decides about (docs/liveness.md).
var livenessFacts = []string{
	"consul.GossipCheck", "consul.IsMaintenance", "consul.StartedByJorc", "consul.NodeMaintenance",
	"catalog.PresenceID", "catalog.PresenceName", "cluster.Assess",
}

// livenessUsers are the files outside internal/cluster that read one of these
// facts for another purpose than to decide whether a host is there.
var livenessUsers = map[string]string{
	"internal/agent/maintenance.go":    "this host's own maintenance mode",
	"internal/agent/status.go":         "which of this host's own checks its configuration can fix",
	"internal/doctor/consul_checks.go": "explains the checks of one node",
	"internal/doctor/health.go":        "lists the checks of one node",
}

// TestLivenessHasOneOwner: only internal/cluster decides whether a host is there; internal/fleet reads what that follows from.
func TestLivenessHasOneOwner(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		owner := s.dir == "internal/cluster" || s.dir == "internal/fleet" || s.dir == "internal/catalog" || s.dir == "internal/consul"
		if s.test || owner || slices.Contains(beside, s.dir) || s.dir == "bench" {
			continue
		}
		report := func(n ast.Node, what string) {
			if livenessUsers[s.path] == "" {
				t.Errorf("%s: %s: use the condition of the host in cluster.State", s.position(n), what)
			}
			used[s.path] = true
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if n.Kind == token.STRING && (strings.Contains(n.Value, `"serfHealth`) || strings.Contains(n.Value, "_node_maintenance")) {
					report(n, n.Value)
				}
			case *ast.SelectorExpr:
				if pkg, ok := n.X.(*ast.Ident); ok && slices.Contains(livenessFacts, pkg.Name+"."+n.Sel.Name) {
					report(n, pkg.Name+"."+n.Sel.Name)
				}
			}
			return true
		})
	}
	for file := range livenessUsers {
		if !used[file] {
			t.Errorf("%s no longer reads checks: remove it from the list", file)
		}
	}
}

// TestPackageComments: every package has exactly one package comment.
func TestPackageComments(t *testing.T) {
	comments, packages := map[string][]string{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		packages[s.dir] = true
		if s.ast.Doc != nil && strings.TrimSpace(s.ast.Doc.Text()) != "" {
			comments[s.dir] = append(comments[s.dir], s.path)
		}
	}
	for dir := range packages {
		if got := comments[dir]; len(got) != 1 {
			t.Errorf("%s: %d package comments %v, want 1", dir, len(got), got)
		}
	}
}

// TestGlossary: each identifier that docs/glossary.md names is declared where it
// says.
func TestGlossary(t *testing.T) {
	text, err := os.ReadFile("docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, d := range s.ast.Decls {
			general, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					declared[s.ast.Name.Name+"."+spec.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						declared[s.ast.Name.Name+"."+name.Name] = true
					}
				}
			}
		}
	}
	named := regexp.MustCompile("(?m)\\| `([a-z]+\\.[A-Za-z]+)` \\|$").FindAllStringSubmatch(string(text), -1)
	if len(named) < 40 {
		t.Fatalf("the glossary names %d identifiers; want at least 40", len(named))
	}
	for _, n := range named {
		if !declared[n[1]] {
			t.Errorf("docs/glossary.md names %s, which is not declared", n[1])
		}
	}
}

// notRecorded are packages that write whole files and whose own tests record no power failure, with the reason.
var notRecorded = map[string]string{
	"cmd/jorc":           "commands write files for their caller, who repeats them",
	"internal/fixture":   "an operator asks for each file of a template's test, and asks again",
	"internal/durable":   "the tests of internal/crashtest record it",
	"internal/fleettest": "files of tests",
}

// TestWritersAreRecorded: each package that keeps files on the disk has tests which record its
// writes and replay them as power failures.
func TestWritersAreRecorded(t *testing.T) {
	writes := map[string]string{}
	recorded := map[string]bool{}
	for _, s := range sources(t) {
		ast.Inspect(s.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			from, ok := call.X.(*ast.Ident)
			switch {
			case !ok:
			case from.Name == "durable" && !s.test && slices.Contains([]string{"WriteFile", "NewDoc", "WriteNew", "Create", "Update"}, call.Sel.Name):
				writes[s.dir] = s.position(n)
			case from.Name == "crashtest" && s.test && slices.Contains([]string{"Record", "TestDocuments"}, call.Sel.Name):
				recorded[s.dir] = true
			}
			return true
		})
	}
	if len(recorded) < 5 {
		t.Fatalf("packages with a record: got %v, want more", recorded)
	}
	for dir, at := range writes {
		if notRecorded[dir] == "" && !recorded[dir] {
			t.Errorf("%s: package %s writes files: record them with internal/crashtest", at, dir)
		}
	}
	for dir := range notRecorded {
		if recorded[dir] {
			t.Errorf("package %s records its writes: take it out of notRecorded", dir)
		}
	}
}

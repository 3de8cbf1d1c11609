package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/kv"
)

// RunningVersions reads which versions run on any node, in order, with two requests. It
// returns consul.ErrDenied also when the token may see only a part, or
// consul.ErrUnreachable.
func (c *Cluster) RunningVersions(ctx context.Context) ([]string, error) {
	all, err := c.readReports(ctx)
	if err != nil {
		return nil, err
	}
	versions := map[string]bool{}
	for _, d := range all {
		versions[d.Version] = true
	}
	delete(versions, "")
	return slices.Sorted(maps.Keys(versions)), nil
}

// HostsRunning reads which nodes run version, in order, with two requests. It returns
// text.ErrName, or what RunningVersions returns.
func (c *Cluster) HostsRunning(ctx context.Context, version string) ([]string, error) {
	if err := CheckVersion(version); err != nil {
		return nil, err
	}
	all, err := c.readReports(ctx)
	if err != nil {
		return nil, err
	}
	return runningOn(all, version), nil
}

// runningOn returns the nodes that run version, in order.
func runningOn(all map[string]Report, version string) []string {
	hosts := []string{}
	for _, node := range slices.Sorted(maps.Keys(all)) {
		if all[node].Version == version {
			hosts = append(hosts, node)
		}
	}
	return hosts
}

// readReports reads the documents of all nodes with one request, and asks at the same
// time whether the answer is whole. What cannot be read is left out.
func (c *Cluster) readReports(ctx context.Context) (map[string]Report, error) {
	leaves, err := both(ctx,
		func(ctx context.Context) error { return c.mayRead(ctx, PrefixReports) },
		func(ctx context.Context) (map[string]kv.Leaf[Report], error) { return c.reports.List(ctx) })
	if err != nil {
		return nil, err
	}
	all := make(map[string]Report, len(leaves))
	for node, leaf := range leaves {
		if leaf.Err == nil {
			all[node] = leaf.Value
		}
	}
	return all, nil
}

// OtherHost is a host that does not run the version that it should.
type OtherHost struct {
	Host    string `json:"host"`
	Version string `json:"version"` // empty: none is known
}

// HostsNotRunning returns those of hosts that do not run version, in order, and what
// they run. It returns text.ErrName, kv.ErrNewer, or what RunningVersions returns.
func (c *Cluster) HostsNotRunning(ctx context.Context, version string, hosts []string) ([]OtherHost, error) {
	for _, h := range hosts {
		if err := CheckNode(h); err != nil {
			return nil, err
		}
	}
	if err := CheckVersion(version); err != nil {
		return nil, err
	}
	reports, err := c.readReports(ctx)
	if err != nil {
		return nil, err
	}
	all := []OtherHost{}
	for _, h := range slices.Compact(slices.Sorted(slices.Values(hosts))) {
		if v := reports[h].Version; v != version {
			all = append(all, OtherHost{Host: h, Version: v})
		}
	}
	return all, nil
}

// Report reads what node reports; exists is false when it never did. It
// returns text.ErrName, kv.ErrDamaged, kv.ErrNewer, consul.ErrDenied or
// consul.ErrUnreachable.
func (c *Cluster) Report(ctx context.Context, node string) (d Report, exists bool, err error) {
	if err := CheckNode(node); err != nil {
		return Report{}, false, err
	}
	e, err := c.reports.At(node).Get(ctx)
	if err != nil {
		return Report{}, false, fmt.Errorf("what node %q reports: %w", node, err)
	}
	return e.Value, e.Exists, nil
}

// both asks at the same time whether the answer is whole, and for the answer.
func both[T any](ctx context.Context, allowed func(context.Context) error, ask func(context.Context) (T, error)) (T, error) {
	var answer, none T
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return allowed(ctx) })
	g.Go(func() (err error) {
		answer, err = ask(ctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return none, err
	}
	return answer, nil
}

// Uniqueness says whether one version is the only one that runs.
type Uniqueness struct {
	Version  string         `json:"version"`
	Single   bool           `json:"single"`
	Found    bool           `json:"found"`  // some host runs it
	Others   []OtherVersion `json:"others"` // versions that hosts run which are there
	Detached []DetachedHost `json:"apart"`  // hosts that run another one, but are not there
}

// OtherVersion is another version that runs.
type OtherVersion struct {
	Version  string   `json:"version"`
	Hosts    int      `json:"hosts"`
	Examples []string `json:"examples"` // the first of them
}

// DetachedHost is a host that is no longer there, and what is known of it.
type DetachedHost struct {
	Host    string   `json:"host"`
	Version string   `json:"version"`
	Life    Liveness `json:"life"`
	Arrived string   `json:"arrived"` // when it came to Version
}

// examples is how many hosts of a version are named.
const examples = 3

// UniqueVersion reports whether version is the only one that runs. Hosts that are dead,
// or not in Consul's catalog, keep no version alive: they are named apart. It
// takes two requests when no other version runs, and otherwise a few, and
// returns what RunningVersions returns.
func (c *Cluster) UniqueVersion(ctx context.Context, version string) (Uniqueness, error) {
	s := Uniqueness{Version: version, Others: []OtherVersion{}, Detached: []DetachedHost{}}
	if err := CheckVersion(version); err != nil {
		return s, err
	}
	reports, err := c.readReports(ctx)
	if err != nil {
		return s, err
	}
	at := map[string][]string{} // the hosts of other versions
	var hosts []string
	for _, h := range slices.Sorted(maps.Keys(reports)) {
		switch v := reports[h].Version; v {
		case "":
		case version:
			s.Found = true
		default:
			at[v] = append(at[v], h)
			hosts = append(hosts, h)
		}
	}
	lives, err := c.conditions(ctx, hosts)
	if err != nil {
		return s, err
	}
	s.judge(slices.Sorted(maps.Keys(at)), at, lives)
	for i, a := range s.Detached {
		s.Detached[i].Arrived = reports[a.Host].Since.Format(time.RFC3339)
	}
	return s, nil
}

// judge tells apart who counts.
func (s *Uniqueness) judge(running []string, at map[string][]string, lives map[string]Condition) {
	for _, v := range running {
		o := OtherVersion{Version: v, Examples: []string{}}
		for _, h := range at[v] {
			if lives[h].Detached() {
				s.Detached = append(s.Detached, DetachedHost{Host: h, Version: v, Life: lives[h].Liveness})
				continue
			}
			o.Hosts++
			if o.Hosts <= examples {
				o.Examples = append(o.Examples, h)
			}
		}
		if o.Hosts > 0 {
			s.Others = append(s.Others, o)
		}
	}
	s.Single = s.Found && len(s.Others) == 0
}

// HostState is the state of a host in one category.
type HostState struct {
	Host     string    `json:"host"`
	Category string    `json:"category"`
	State    string    `json:"state"`
	Since    time.Time `json:"since,omitzero"`
	Version  string    `json:"version"` // that it is about
	Detail   string    `json:"detail"`
	LogURL   string    `json:"log_url"`
	Suspect  string    `json:"suspect"`
}

// HostStates reads the states of node, or of all nodes when it is empty, in order
// of hosts and categories. Documents that cannot be read do not hide others:
// unreadable says why. It returns what Report returns.
func (c *Cluster) HostStates(ctx context.Context, node string) (all []HostState, unreadable []error, err error) {
	if node != "" {
		d, _, err := c.Report(ctx, node)
		return statesOf(node, d), nil, err
	}
	leaves, err := both(ctx,
		func(ctx context.Context) error { return c.mayRead(ctx, PrefixReports) },
		func(ctx context.Context) (map[string]kv.Leaf[Report], error) { return c.reports.List(ctx) })
	if err != nil {
		return nil, nil, err
	}
	all = []HostState{}
	for _, host := range slices.Sorted(maps.Keys(leaves)) {
		if err := leaves[host].Err; err != nil {
			unreadable = append(unreadable, err)
		}
		all = append(all, statesOf(host, leaves[host].Value)...)
	}
	return all, unreadable, nil
}

func statesOf(host string, d Report) []HostState {
	all := []HostState{}
	for category, s := range d.States {
		all = append(all, HostState{host, category, s.State, s.Since, s.Version, s.Detail, s.LogURL, s.Suspect})
	}
	slices.SortFunc(all, func(a, b HostState) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.Category, b.Category))
	})
	return all
}

// StateOfPuppet is the state that a detailed exit code of Puppet means: 0
// nothing to do, 2 changes made; all others are failures.
func StateOfPuppet(code int) CategoryState {
	switch code {
	case 0, 2:
		return CategoryState{State: StateSuccess}
	default:
		return CategoryState{State: StateFailed, Detail: fmt.Sprintf("exit code %d", code)}
	}
}

// StateOfExit is the state that an exit code of any other program means.
func StateOfExit(code int) CategoryState {
	if code == 0 {
		return CategoryState{State: StateSuccess}
	}
	return CategoryState{State: StateFailed, Detail: fmt.Sprintf("exit code %d", code)}
}

// ErrUnknownType: scripts report no such category.
var ErrUnknownType = errors.New("unknown type")

// ParseResult reads how host scripts report: a type, which is the category, and
// as its result a state or an exit code. The codes of puppet, puppet_service and
// config are Puppet's. It returns ErrUnknownType for types other than these,
// validation, validation_service and provisioned, and ErrBadState for a result
// that is neither a state nor an exit code.
func ParseResult(kind, result string) (CategoryState, error) {
	ofExit := StateOfExit
	switch kind {
	case "puppet", "puppet_service", CategoryConfig:
		ofExit = StateOfPuppet
	case CategoryValidation, "validation_service", CategoryProvisioned:
	default:
		return CategoryState{}, fmt.Errorf("%w %q: use puppet, puppet_service, %s, %s, validation_service or %s", ErrUnknownType, kind, CategoryConfig, CategoryValidation, CategoryProvisioned)
	}
	if slices.Contains(States(), result) {
		return CategoryState{State: result}, nil
	}
	code, err := strconv.Atoi(result)
	if err != nil {
		return CategoryState{}, fmt.Errorf("result %q of %s: %w: it can be an exit code, %s", result, kind, ErrBadState, strings.Join(States(), ", "))
	}
	return ofExit(code), nil
}

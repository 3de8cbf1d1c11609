package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/consul"
)

// Kinds of failures.
const (
	FailureState = "state" // what the host reported
	FailureCheck = "check" // a health check in Consul
)

// FailureSuspect is the state of a failure that was none in the end.
const FailureSuspect = "suspect"

// Failure is something that is wrong with a host.
type Failure struct {
	Host    string    `json:"host"`
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`    // the category or the check
	State   string    `json:"state"`   // failed, critical, maintenance; warning, suspect
	Service string    `json:"service"` // of a check; empty: the host itself
	Version string    `json:"version"`
	Since   time.Time `json:"since,omitzero"`
	Detail  string    `json:"detail"`
	LogURL  string    `json:"log_url"`
}

// Failures reads which hosts are in state failed, and which checks are
// critical; with warnings also checks in state warning and successes that are
// suspect. Checks of hosts that belong to other clusters are left out, and
// maintenance that jorc itself began. The number of requests does not grow with that
// of hosts. It returns
// consul.ErrDenied also when the token may see only a part, kv.ErrNewer, or
// consul.ErrUnreachable.
func (c *Cluster) Failures(ctx context.Context, warnings bool) ([]Failure, error) {
	var s State
	var checks []Failure
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.maySeeCatalog(gctx) })
	g.Go(func() (err error) { s, err = c.LoadReports(gctx); return err })
	g.Go(func() (err error) { checks, err = c.failingChecks(gctx, warnings); return err })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := append(s.FailedStates(warnings), checks...)
	slices.SortFunc(all, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.Service, b.Service),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.State, b.State))
	})
	return all, nil
}

// FailedStates returns the states that failed; with suspects also successes that
// are doubtful. They are in no order.
func (s *State) FailedStates(suspects bool) (all []Failure) {
	for host, h := range s.Hosts {
		for category, c := range h.Report.States {
			f := Failure{
				Host: host, Kind: FailureState, Name: category, State: StateFailed,
				Version: c.Version, Since: c.Since, Detail: c.Detail, LogURL: c.LogURL,
			}
			switch {
			case c.State == StateFailed:
				all = append(all, f)
			case suspects && c.Suspect != "":
				f.State, f.Detail = FailureSuspect, c.Suspect
				all = append(all, f)
			}
		}
	}
	return all
}

// failingChecks reads the checks that are critical, or in state warning.
func (c *Cluster) failingChecks(ctx context.Context, warnings bool) ([]Failure, error) {
	checks, err := whole(c.client.HealthState(ctx, consul.HealthCritical, consul.Query{}))
	if err == nil && warnings {
		var more consul.HealthChecks
		more, err = whole(c.client.HealthState(ctx, consul.HealthWarning, consul.Query{}))
		checks = append(checks, more...)
	}
	if err != nil {
		return nil, err
	}
	var hosts []string
	for _, c := range checks {
		hosts = append(hosts, c.Node)
	}
	slices.Sort(hosts)
	foreign, err := c.foreign(ctx, slices.Compact(hosts))
	if err != nil {
		return nil, err
	}
	var all []Failure
	for _, c := range checks {
		if f, ok := failureOf(c); ok && !foreign[c.Node] {
			all = append(all, f)
		}
	}
	return all, nil
}

// failureOf reads a check; ok is false for maintenance that jorc itself began.
func failureOf(c *consul.HealthCheck) (f Failure, ok bool) {
	f = Failure{Host: c.Node, Kind: FailureCheck, Name: c.Name, State: c.Status, Service: c.ServiceID, Detail: strings.TrimSpace(c.Output)}
	if consul.IsMaintenance(c.CheckID) {
		f.State, f.Detail = consul.HealthMaint, c.Notes
		return f, !consul.StartedByJorc(c.Notes)
	}
	return f, true
}

// foreign tells which of hosts are known to other clusters below the prefix
// and not to this one. Clusters that the token may not read are not asked.
func (c *Cluster) foreign(ctx context.Context, hosts []string) (map[string]bool, error) {
	if c.name == "" || len(hosts) == 0 {
		return nil, nil // the clusters' keys cannot be distinguished from others
	}
	root := New(c.client, c.prefix, "")
	clusters, _, err := c.client.KVKeys(ctx, root.store.Path(""), "/", consul.Query{})
	if err != nil {
		return nil, err
	}
	own, err := root.knownTo(ctx, hosts, []string{c.name + "/"})
	if err != nil {
		return nil, err
	}
	others := clusters[:0]
	for _, path := range clusters {
		name := strings.TrimPrefix(path, root.store.Path(""))
		if strings.HasSuffix(name, "/") && name != "/" && name != c.name+"/" {
			others = append(others, name)
		}
	}
	unknown := slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return own[h] })
	return root.knownTo(ctx, unknown, others)
}

// knownTo tells which of hosts are members of, or report to, one of clusters
// (each with a slash at its end).
func (c *Cluster) knownTo(ctx context.Context, hosts, clusters []string) (map[string]bool, error) {
	var keys []string
	host := map[string]string{}
	for _, name := range clusters {
		for _, h := range hosts {
			for _, key := range []string{name + MemberKey(h), name + ReportKey(h)} {
				keys, host[key] = append(keys, key), h
			}
		}
	}
	results, err := c.readKeys(ctx, keys)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, key := range keys {
		if results[key].Index(key) != 0 {
			known[host[key]] = true
		}
	}
	return known, nil
}

// Unaccounted is a provisioned host that does not do its part.
type Unaccounted struct {
	Host    string   `json:"host"`
	Reasons []string `json:"reasons"`
}

// Reasons to be unaccounted for.
const (
	ReasonNotMember = "no member of the cluster"
	ReasonNoVersion = "runs no version"
	ReasonNoAgent   = "jorc's own check has expired"
	ReasonDown      = "dead: gossip does not hear it"
	ReasonAbsent    = "not in Consul's catalog"
)

// Unaccounted reads which provisioned hosts do not do their part; ttl is as for
// State.Unaccounted. It returns consul.ErrDenied also when the token may see only
// a part, or consul.ErrUnreachable.
func (c *Cluster) Unaccounted(ctx context.Context, ttl map[string]time.Duration) ([]Unaccounted, error) {
	var s State
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.mayRead(gctx, PrefixReports, PrefixHosts, KeyProfile) })
	g.Go(func() error { return c.maySeeCatalog(gctx) })
	g.Go(func() (err error) {
		s, err = c.Load(gctx, NeedReports|NeedAgent|NeedLiveness|NeedProfile)
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return s.Unaccounted(ttl, now()), nil
}

// Unaccounted returns the hosts that were provisioned, but are not members (where
// there is a cluster), run no version, have a jorc agent that died, are down or
// absent, or have no jorc agent and reported a category for the last time longer
// ago than its ttl.
func (s *State) Unaccounted(ttl map[string]time.Duration, now time.Time) []Unaccounted {
	clustered := s.Exists || len(s.Nodes()) > 0
	all := []Unaccounted{}
	for _, node := range slices.Sorted(maps.Keys(s.Hosts)) {
		h := s.Hosts[node]
		if h.Report.States[CategoryProvisioned].State != StateSuccess {
			continue
		}
		var reasons []string
		add := func(holds bool, reason string) {
			if holds {
				reasons = append(reasons, reason)
			}
		}
		add(h.Condition.Liveness == LivenessAbsent, ReasonAbsent)
		add(h.Condition.Liveness == LivenessDown, ReasonDown)
		add(clustered && !h.Member, ReasonNotMember)
		add(h.Report.Version == "", ReasonNoVersion)
		add(h.Condition.AgentCheck() == SignalFailing, ReasonNoAgent)
		if h.Condition.AgentCheck() == SignalNone {
			for _, category := range slices.Sorted(maps.Keys(ttl)) {
				last, reported := h.Report.lastOf(category)
				add(reported && now.Sub(last) > ttl[category]+repeatAfter, fmt.Sprintf("no report of %s for more than %s", category, shortDuration(ttl[category])))
			}
		}
		if len(reasons) > 0 {
			all = append(all, Unaccounted{Host: node, Reasons: reasons})
		}
	}
	return all
}

// shortDuration is d without units that are zero: 24h in place of 24h0m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

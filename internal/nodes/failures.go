package nodes

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// Kinds of failures.
const (
	KindState = "state" // what the host reported
	KindCheck = "check" // a health check in Consul
)

// Suspect is the state of a failure that was none in the end.
const Suspect = "suspect"

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
func (l *Ledger) Failures(ctx context.Context, warnings bool) ([]Failure, error) {
	var states, checks []Failure
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.mayRead(gctx, keyNodes) })
	g.Go(func() error { return l.maySeeCatalog(gctx) })
	g.Go(func() (err error) { states, err = l.failedStates(gctx, warnings); return err })
	g.Go(func() (err error) { checks, err = l.failingChecks(gctx, warnings); return err })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := slices.Concat(states, checks)
	slices.SortFunc(all, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.Service, b.Service),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.State, b.State))
	})
	return all, nil
}

// failedStates reads the states that failed; with suspects also successes that
// are doubtful.
func (l *Ledger) failedStates(ctx context.Context, suspects bool) ([]Failure, error) {
	documents, err := l.docs.List(ctx)
	if err != nil {
		return nil, err
	}
	var all []Failure
	for host, leaf := range documents {
		for category, s := range leaf.Value.States {
			f := Failure{
				Host: host, Kind: KindState, Name: category, State: Failed,
				Version: s.Version, Since: s.Since, Detail: s.Detail, LogURL: s.LogURL,
			}
			switch {
			case s.State == Failed:
				all = append(all, f)
			case suspects && s.Suspect != "":
				f.State, f.Detail = Suspect, s.Suspect
				all = append(all, f)
			}
		}
	}
	return all, nil
}

// failingChecks reads the checks that are critical, or in state warning.
func (l *Ledger) failingChecks(ctx context.Context, warnings bool) ([]Failure, error) {
	checks, err := whole(l.client.HealthState(ctx, consul.HealthCritical, consul.Query{}))
	if err == nil && warnings {
		var more consul.HealthChecks
		more, err = whole(l.client.HealthState(ctx, consul.HealthWarning, consul.Query{}))
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
	foreign, err := l.foreign(ctx, slices.Compact(hosts))
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
	f = Failure{Host: c.Node, Kind: KindCheck, Name: c.Name, State: c.Status, Service: c.ServiceID, Detail: strings.TrimSpace(c.Output)}
	if consul.IsMaintenance(c.CheckID) {
		f.State, f.Detail = consul.HealthMaint, c.Notes
		return f, !consul.StartedByJorc(c.Notes)
	}
	return f, true
}

// foreign tells which of hosts are known to other clusters below the prefix
// and not to this one. Clusters that the token may not read are not asked.
func (l *Ledger) foreign(ctx context.Context, hosts []string) (map[string]bool, error) {
	if l.cluster == "" || len(hosts) == 0 {
		return nil, nil // the clusters' keys cannot be told from others
	}
	root := &Ledger{client: l.client, store: kv.New(l.client, l.prefix)}
	clusters, _, err := l.client.KVKeys(ctx, root.store.Path(""), "/", consul.Query{})
	if err != nil {
		return nil, err
	}
	own, err := root.knownTo(ctx, hosts, []string{l.cluster + "/"})
	if err != nil {
		return nil, err
	}
	others := clusters[:0]
	for _, c := range clusters {
		c = strings.TrimPrefix(c, root.store.Path(""))
		if strings.HasSuffix(c, "/") && c != "/" && c != l.cluster+"/" {
			others = append(others, c)
		}
	}
	unknown := slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return own[h] })
	return root.knownTo(ctx, unknown, others)
}

// knownTo tells which of hosts are members of, or report to, one of clusters
// (each with a slash at its end).
func (l *Ledger) knownTo(ctx context.Context, hosts, clusters []string) (map[string]bool, error) {
	var keys []string
	host := map[string]string{}
	for _, c := range clusters {
		for _, h := range hosts {
			for _, key := range []string{c + cluster.MemberKey(h), c + cluster.ReportKey(h)} {
				keys, host[key] = append(keys, key), h
			}
		}
	}
	results, err := l.read(ctx, keys)
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

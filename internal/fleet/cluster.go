// Package fleet reads, watches and writes clusters in Consul: what package cluster is the model of. Cluster has one request, or a few,
// for each question and each change; Watcher keeps a State current with what has changed; ReportWriter and RecordSync write what
// one host says of itself.
//
// All of a cluster lives below one prefix in Consul's KV and is changed by compare-and-swap. Failures are the sentinels of package
// cluster, or those of packages profile, kv and consul, by errors.Is. Begin reading with Cluster.Load.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// Format numbers of this package's documents.
const (
	leadersFormat = 1
	controlFormat = 1
	recordFormat  = 1
	holdFormat    = 1
	reportFormat  = 1
)

// Cluster is one cluster in Consul's KV. It is safe for concurrent use.
type Cluster struct {
	client *consul.Client
	prefix string
	name   string
	store  *kv.Store
	editor *profile.Editor // remembers compiled schemas

	profile kv.Doc[profile.Document]
	leaders kv.Doc[cluster.Leaders]
	control kv.Doc[cluster.Control]
	changes kv.Doc[cluster.AuditLog]
	history kv.Doc[profile.History] // of the profile
	members kv.Tree[cluster.Record]
	holds   kv.Tree[cluster.Hold] // of nodes
	reports kv.Tree[cluster.Report]

	consistent bool // reads are
	// unprojected: the token may not write index keys.
	unprojected *atomic.Bool
}

// New returns the cluster called name below prefix. It does no I/O.
func New(client *consul.Client, prefix, name string) *Cluster {
	c := &Cluster{client: client, prefix: strings.Trim(prefix, "/"), name: name, editor: profile.NewEditor(paramValidators()), unprojected: &atomic.Bool{}}
	return c.In(kv.New(client, path(c.prefix, name)))
}

// In returns the same cluster in another store of the same prefix, such as that of
// a held lock.
func (c *Cluster) In(s *kv.Store) *Cluster {
	d := *c
	d.store = s
	d.profile = kv.NewDoc[profile.Document](s, cluster.KeyProfile, profile.Format)
	d.leaders = kv.NewDoc[cluster.Leaders](s, cluster.KeyLeaders, leadersFormat)
	d.control = kv.NewDoc[cluster.Control](s, cluster.KeyControl, controlFormat)
	d.changes = kv.NewDoc[cluster.AuditLog](s, cluster.KeyChanges, changesFormat)
	d.history = kv.NewDoc[profile.History](s, cluster.KeyProfileHistory, profileHistoryFormat)
	d.members = kv.NewTree[cluster.Record](s, cluster.PrefixHosts, recordFormat).Ending(cluster.EndMember).Checked(cluster.MaxDocument, cluster.Record.Bounded)
	d.holds = kv.NewTree[cluster.Hold](s, cluster.PrefixHosts, holdFormat).Ending(cluster.EndHold)
	d.reports = kv.NewTree[cluster.Report](s, cluster.PrefixReports, reportFormat).Checked(cluster.MaxDocument, cluster.Report.Bounded)
	return &d
}

// WithValidators returns the same cluster whose params are also checked by
// validators, by the names of the params. One of this package's own is replaced.
func (c *Cluster) WithValidators(validators map[string]profile.Validator) *Cluster {
	d := *c
	d.editor = c.editor.WithValidators(validators)
	return &d
}

// paramValidators are the validators of the params that mean something to this
// package. Null means the default.
func paramValidators() map[string]profile.Validator {
	return map[string]profile.Validator{
		cluster.ParamFilter: func(v profile.Value) error {
			if v.IsNull() {
				return nil
			}
			if v.Kind() != "string" {
				return fmt.Errorf("a filter is a string: %w", cluster.ErrInvalid)
			}
			_, err := cluster.ParseFilter(v.Raw())
			return err
		},
		cluster.ParamLeaderGrace: func(v profile.Value) error {
			if v.IsNull() {
				return nil
			}
			_, err := parseGracePeriod(v, cluster.Timing{}.WithDefaults())
			return err
		},
		cluster.ParamEligible: func(v profile.Value) error {
			if v.Kind() != "boolean" {
				return fmt.Errorf("it must be true or false: %w", cluster.ErrInvalid)
			}
			return nil
		},
	}
}

// Consistent returns the same cluster with reads that no deposed leader of
// Consul's can answer.
func (c *Cluster) Consistent() *Cluster {
	d := c.In(c.store.Consistent())
	d.consistent = true
	return d
}

// Name returns the cluster's name.
func (c *Cluster) Name() string { return c.name }

// Store returns the keys of the cluster.
func (c *Cluster) Store() *kv.Store { return c.store }

// Client is how the cluster reaches Consul.
func (c *Cluster) Client() *consul.Client { return c.client }

func path(segments ...string) string {
	var parts []string
	for _, s := range segments {
		if s = strings.Trim(s, "/"); s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, "/")
}

// Summary is one cluster below a prefix.
type Summary struct {
	Name    string `json:"name"`
	Members int    `json:"members"`
}

// List reads which clusters there are below prefix, in order of their names,
// with one request for the names of keys, and one for the token's rights when it
// sees no key. It returns consul.ErrDenied also when
// the token may see only some of the keys.
func List(ctx context.Context, client *consul.Client, prefix string) ([]Summary, error) {
	names, err := kv.NewTextTree(kv.New(client, prefix), "").Names(ctx)
	if err != nil {
		return nil, err
	}
	members := map[string]int{}
	all := []Summary{}
	for _, name := range names {
		of, rest, _ := strings.Cut(name, "/")
		switch {
		case rest == cluster.KeyProfile:
			all = append(all, Summary{Name: of})
		case strings.HasPrefix(rest, cluster.PrefixHosts) && strings.HasSuffix(rest, cluster.EndMember):
			members[of]++
		}
	}
	for i := range all {
		all[i].Members = members[all[i].Name]
	}
	if len(names) == 0 {
		return all, New(client, prefix, "").mayRead(ctx, "")
	}
	return all, nil
}

// ReadableMembers reads how many members there are in each cluster below prefix whose records
// the token may read, with one request for the names of keys. It returns a class of package
// consul.
func ReadableMembers(ctx context.Context, client *consul.Client, prefix string) (map[string]int, error) {
	store := kv.New(client, prefix)
	keys, _, err := client.KVKeys(ctx, store.Path(""), "", consul.Query{})
	members := map[string]int{}
	for _, key := range keys {
		of, rest, _ := strings.Cut(strings.TrimPrefix(key, store.Path("")), "/")
		if strings.HasPrefix(rest, cluster.PrefixHosts) && strings.HasSuffix(rest, cluster.EndMember) {
			members[of]++
		}
	}
	return members, err
}

// Delete deletes all keys of the cluster, whatever they hold; that there are
// none is not an error.
func (c *Cluster) Delete(ctx context.Context) error {
	if c.name == "" {
		return fmt.Errorf("delete a cluster without a name: %w: its keys cannot be distinguished from those of others", cluster.ErrInvalid)
	}
	return c.client.KVDeleteTree(ctx, c.store.Path(""))
}

// Orchestrator tells who orchestrates the cluster whose store is s; held is false
// when the lock is free, also when something that is not an orchestrator holds the lock.
// It returns kv.ErrNewer, and that it is held, when a newer jorc does; or
// consul.ErrDenied or consul.ErrUnreachable.
func Orchestrator(ctx context.Context, s *kv.Store) (h kv.Holder, held bool, err error) {
	h, held, err = s.Holder(ctx, cluster.OrchestratorLock)
	if errors.Is(err, kv.ErrDamaged) {
		return kv.Holder{}, false, nil
	}
	return h, held, err
}

// WatchOrchestrated calls handle with whether the cluster whose store is s has an
// orchestrator, and after each change, until ctx ends. While the lock cannot be
// read, handle is not called.
func WatchOrchestrated(ctx context.Context, s *kv.Store, handle func(bool)) error {
	return kv.NewText(s, cluster.OrchestratorLock).Watch(ctx, func(u kv.Update[string]) {
		if u.Err == nil {
			handle(u.Entry.Session != "")
		}
	})
}

// Orchestrated reports whether the cluster whose store is s has an orchestrator:
// without, no run begins and no policy continues. It returns consul.ErrDenied or
// consul.ErrUnreachable.
func Orchestrated(ctx context.Context, s *kv.Store) (bool, error) {
	_, held, err := Orchestrator(ctx, s)
	if errors.Is(err, kv.ErrNewer) {
		err = nil
	}
	return held, err
}

// Desired reads the desired version; it is empty when none was triggered. It
// returns kv.ErrDamaged for what cannot be a version, consul.ErrDenied or
// consul.ErrUnreachable.
func (c *Cluster) Desired(ctx context.Context) (string, error) {
	e, err := c.desired().Get(ctx)
	if err != nil {
		return "", err
	}
	return c.desiredOf(e)
}

// WatchDesired calls handle with the desired version, and whenever it changes,
// until ctx ends; then it returns ctx's error. err is what Desired returns, or
// why the key cannot be read at present.
func (c *Cluster) WatchDesired(ctx context.Context, handle func(version string, err error)) error {
	return c.desired().Watch(ctx, func(u kv.Update[string]) {
		if u.Err != nil {
			handle("", u.Err)
			return
		}
		handle(c.desiredOf(u.Entry))
	})
}

// desiredOf reads what the key holds; scripts leave a line end behind it.
func (c *Cluster) desiredOf(e kv.Entry[string]) (string, error) {
	version := strings.TrimSpace(e.Value)
	if version == "" {
		return "", nil
	}
	if err := cluster.CheckVersion(version); err != nil {
		return "", fmt.Errorf("key %q: %w: %v", c.store.Path(cluster.KeyDesired), kv.ErrDamaged, err)
	}
	return version, nil
}

func (c *Cluster) desired() kv.Doc[string] { return kv.NewText(c.store, cluster.KeyDesired) }

// Watched is a cluster as the agent on one node watches it: one blocking query on
// what all nodes watch, and one on what that node does. All watches of such keys
// through Cluster share them.
type Watched struct {
	*Cluster

	current, host *kv.Shared
}

// WatchedBy returns the cluster as the agent on node watches it. Its watches
// wait until Run runs.
func (c *Cluster) WatchedBy(node string) *Watched {
	w := &Watched{current: kv.NewShared(c.store, cluster.PrefixCurrent), host: kv.NewShared(c.store, cluster.HostPrefix(node))}
	w.Cluster = c.In(c.store.Sharing(w.current, w.host))
	return w
}

// Run asks Consul until ctx ends; then it returns ctx's error.
func (w *Watched) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.current.Run(ctx) })
	g.Go(func() error { return w.host.Run(ctx) })
	return g.Wait()
}

// AwaitLayout returns nil once the cluster's keys have the layout that this jorc
// reads, or ctx's error. A cluster that has none yet is given it, where the token
// may do so. wrong is called with cluster.ErrLayout, or why the layout is not known, when
// that changes.
func (w *Watched) AwaitLayout(ctx context.Context, wrong func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	good, reported := false, ""
	err := w.current.Pairs(ctx, func(pairs consul.KVPairs, err error) {
		if err == nil {
			err = w.layoutIn(ctx, pairs)
		}
		switch {
		case err == nil:
			good = true
			cancel()
		case ctx.Err() == nil && err.Error() != reported:
			reported = err.Error()
			wrong(err)
		}
	})
	if good {
		return nil
	}
	return err
}

// layoutIn checks the layout among pairs, and writes it where it is missing in a
// cluster without keys of another one.
func (w *Watched) layoutIn(ctx context.Context, pairs consul.KVPairs) error {
	doc := kv.NewText(w.store, cluster.KeyLayout)
	e, err := doc.Find(pairs)
	if err != nil || e.Exists {
		return cmp.Or(err, w.checkLayout(e.Value, true, false))
	}
	if err := w.CheckLayout(ctx); err != nil {
		return err
	}
	_, err = doc.CompareAndSwap(ctx, e, strconv.Itoa(cluster.Layout))
	if errors.Is(err, kv.ErrConflict) || errors.Is(err, consul.ErrDenied) {
		return nil // another has written it, or the next operator does
	}
	return err
}

// WatchRecord calls handle with what node says of itself, and whenever that
// changes, until ctx ends; that the node is not a member is an entry that does not
// exist.
func (c *Cluster) WatchRecord(ctx context.Context, node string, handle func(kv.Update[cluster.Record])) error {
	return c.members.At(node).Watch(ctx, handle)
}

// WatchHold calls handle with the hold of node, and whenever that changes, until
// ctx ends.
func (c *Cluster) WatchHold(ctx context.Context, node string, handle func(kv.Update[cluster.Hold])) error {
	return c.holds.At(node).Watch(ctx, handle)
}

// WatchLeaders calls handle with who leads, and whenever that changes, until ctx
// ends. Follow is for a node that acts on leading itself.
func (c *Cluster) WatchLeaders(ctx context.Context, handle func(kv.Update[cluster.Leaders])) error {
	return c.leaders.Watch(ctx, handle)
}

// checkLayout returns cluster.ErrLayout unless text, the value of KeyLayout, is this
// jorc's layout. A cluster without that key has none yet, or is of a jorc from
// before the layout had a number: old says that it has other keys.
func (c *Cluster) checkLayout(text string, exists, old bool) error {
	text = strings.TrimSpace(text)
	n, err := strconv.Atoi(text)
	switch {
	case !exists && !old, exists && err == nil && n == cluster.Layout:
		return nil
	case !exists:
		return fmt.Errorf("cluster %q: %w: its keys were written by an older jorc, and this one does not read them: "+
			"export it with that jorc, delete it, and import it with this one", c.name, cluster.ErrLayout)
	case err != nil:
		return fmt.Errorf("key %q: %w: it holds no number", c.store.Path(cluster.KeyLayout), kv.ErrDamaged)
	case n > cluster.Layout:
		return fmt.Errorf("cluster %q: %w: %d; this jorc reads %d: upgrade jorc on this host", c.name, cluster.ErrLayout, n, cluster.Layout)
	}
	return fmt.Errorf("cluster %q: %w: %d; this jorc reads %d: upgrade jorc on the hosts that still write the older one, and import the cluster again",
		c.name, cluster.ErrLayout, n, cluster.Layout)
}

// CheckLayout returns cluster.ErrLayout for a cluster whose keys this jorc does not
// read, kv.ErrDamaged for a layout that is not a number, or a class of package
// consul. It takes one request.
func (c *Cluster) CheckLayout(ctx context.Context) error {
	r, err := c.store.Txn().Get(cluster.KeyLayout).Get(cluster.KeyProfile).Commit(ctx)
	if err != nil {
		return err
	}
	return c.layoutOf(r)
}

// layoutOf is CheckLayout for a transaction that reads KeyLayout and KeyProfile.
func (c *Cluster) layoutOf(r *kv.Result) error {
	e, err := kv.NewText(c.store, cluster.KeyLayout).From(r)
	if err != nil {
		return err
	}
	return c.checkLayout(e.Value, e.Exists, r.Index(cluster.KeyProfile) != 0)
}

// CheckVersionKey returns consul.ErrRefused unless the local Consul takes version in the
// names of keys, below running_version/. It writes nothing.
func (c *Cluster) CheckVersionKey(ctx context.Context, version string) error {
	if err := c.store.CheckNames(ctx, cluster.PrefixRunning+version); err != nil {
		return fmt.Errorf("version %q: %w", version, err)
	}
	return nil
}

package ui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/text"
)

// ErrTooMany: the server serves as much as it can.
var ErrTooMany = errors.New("too many at a time")

// FleetOptions are what Fleets need. Client and Default must be set.
type FleetOptions struct {
	Client  *consul.Client
	Prefix  string
	Default string // the cluster of viewers that name none
	// Only are the clusters that are shown; empty: all that exist.
	Only []string
	// Watchers are those of this process's orchestrators by cluster, each nil while the
	// orchestrator does not hold its lock. A cluster that has none is read by a watcher of
	// its own.
	Watchers map[string]*concurrency.Latest[*fleet.Watcher]
	Log      hclog.Logger
}

// Fleets are the clusters below one prefix. Each one that is viewed is read by one
// watcher, whatever the number of viewers; one without viewers is not read. It
// is safe for concurrent use.
type Fleets struct {
	o           FleetOptions
	generations generations

	mu      sync.Mutex
	ctx     context.Context // of Run; nil: it does not run
	feeds   map[string]*running
	working sync.WaitGroup

	listing sync.Mutex // held while clusters are listed
	listed  time.Time
	all     []fleet.Summary
}

// running is a feed with its end.
type running struct {
	*feed
	stop context.CancelFunc
}

// NewFleets does no I/O.
func NewFleets(o FleetOptions) *Fleets {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	return &Fleets{o: o, feeds: map[string]*running{}}
}

const (
	maxFeeds   = 16              // clusters that are read at a time
	feedIdle   = 2 * time.Minute // how long one is read without viewers
	listFor    = 5 * time.Second // how long a list of clusters counts
	checkFeeds = 10 * time.Second
)

// Run lets clusters be read until ctx ends; then it returns nil once nothing is read.
func (f *Fleets) Run(ctx context.Context) error {
	f.mu.Lock()
	f.ctx = ctx
	f.mu.Unlock()
	tick := time.NewTicker(checkFeeds)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			f.mu.Lock()
			f.ctx = nil
			f.mu.Unlock()
			f.working.Wait()
			return nil
		case <-tick.C:
			f.stopIdle()
		}
	}
}

// stopIdle stops reading clusters that have had no viewer for a while.
func (f *Fleets) stopIdle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, r := range f.feeds {
		if since := r.idleSince(); !since.IsZero() && time.Since(since) > feedIdle {
			r.stop()
			delete(f.feeds, name)
		}
	}
}

// Clusters returns the clusters below the prefix. The list is at most a few seconds
// old. It returns what fleet.List returns.
func (f *Fleets) Clusters(ctx context.Context) (Clusters, error) {
	f.listing.Lock()
	defer f.listing.Unlock()
	if time.Since(f.listed) > listFor {
		all, err := fleet.List(ctx, f.o.Client, f.o.Prefix)
		switch {
		case errors.Is(err, consul.ErrDenied): // the token may read one cluster only
			all = nil
		case err != nil:
			return Clusters{}, err
		}
		f.all, f.listed = all, time.Now()
	}
	c := Clusters{Clusters: append([]fleet.Summary{}, only(f.all, f.o.Only)...), Default: f.o.Default, Command: commandLine("cluster", "list")}
	if !slices.ContainsFunc(c.Clusters, func(s fleet.Summary) bool { return s.Name == f.o.Default }) {
		c.Clusters = append(c.Clusters, fleet.Summary{Name: f.o.Default})
	}
	return c, nil
}

// Fleet returns one cluster with the rights of the client; sealed: without any param. An empty
// name is the default cluster. It returns cluster.ErrNoCluster, ErrTooMany, or what Clusters
// returns.
func (f *Fleets) Fleet(ctx context.Context, name string, sealed bool) (*Fleet, error) {
	r, err := f.find(ctx, name, f.Clusters)
	if err != nil {
		return nil, err
	}
	return &Fleet{feed: r, sealed: sealed}, nil
}

// find returns what reads a cluster; seen are the clusters that the viewer may see, and the
// only ones that an error names.
func (f *Fleets) find(ctx context.Context, name string, seen func(context.Context) (Clusters, error)) (*feed, error) {
	if name == "" {
		name = f.o.Default
	}
	if name != f.o.Default && !f.reads(name) {
		known, err := seen(ctx)
		if err != nil {
			return nil, err
		}
		var names []string
		for _, c := range known.Clusters {
			names = append(names, c.Name)
		}
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("cluster %q: %w%s", name, cluster.ErrNoCluster, text.Unknown(name, "clusters", names))
		}
	}
	return f.start(name)
}

// Once reads one cluster without following its changes. It returns what Snapshot
// returns.
func (f *Fleets) Once(ctx context.Context, name string) (*Snapshot, error) {
	feed := newFeed(f.o, name, &f.generations)
	if err := feed.begin(ctx); err != nil {
		return nil, err
	}
	if err := feed.refresh(ctx, feed.cluster.NewWatcher()); err != nil {
		return nil, err
	}
	s, _ := feed.latest.Get()
	return s, nil
}

func (f *Fleets) reads(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.feeds[name] != nil
}

// start begins to read a cluster, unless it is read already.
func (f *Fleets) start(name string) (*feed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.feeds[name]; r != nil {
		return r.feed, nil
	}
	switch {
	case f.ctx == nil:
		return nil, fmt.Errorf("cluster %q: the server is ending", name)
	case len(f.feeds) >= maxFeeds:
		return nil, fmt.Errorf("cluster %q: %w: %d other clusters are being viewed; try again in %v", name, ErrTooMany, maxFeeds, feedIdle)
	}
	ctx, stop := context.WithCancel(f.ctx)
	r := &running{newFeed(f.o, name, &f.generations), stop}
	f.feeds[name] = r
	f.working.Go(func() { _ = r.Run(ctx) }) // it ends with ctx, and reports failures to its viewers
	return r.feed, nil
}

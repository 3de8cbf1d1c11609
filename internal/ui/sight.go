package ui

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/text"
)

// A snapshot is read with the rights of the server, and shown to viewers with rights of
// their own. Fleet.shown is the one place where it is cut for a viewer: sourcesOf lists what
// the snapshot was made from, viewerToken.denied asks Consul which of that the viewer's
// token may not read, hiddenBy says what is hidden for that, and Snapshot.without leaves it
// out. Views and streams get nothing but the result.

// sources are the rights to read everything that a snapshot was made from. They are shared
// and must not be changed.
type sources map[consul.Right]bool

// made is what the snapshots of one state were made from.
type made struct {
	state   *cluster.State
	keys    []string // as Consul listed them
	sources *sources
	// unknown are hosts whose keys are no longer listed, so that no right to read them can
	// be asked for.
	unknown map[string]bool
}

// sourcesOf returns what a snapshot was made from. Keys are listed once for each state,
// whatever the number of viewers, after it was read. Keys that were listed the time before
// count, too: a snapshot may hold what was deleted since.
func (f *feed) sourcesOf(ctx context.Context, s *Snapshot) (made, error) {
	f.seeing.Lock()
	defer f.seeing.Unlock() // viewers of the same state wait for one list
	if f.made.state == s.State {
		return f.made, nil
	}
	keys, err := f.cluster.ViewedKeys(ctx)
	if err != nil {
		return made{}, err
	}
	all := make(sources, 2*len(keys))
	for _, key := range keys {
		all[f.cluster.ReadKey(key)] = true
	}
	for _, key := range f.made.keys {
		all[f.cluster.ReadKey(key)] = true
	}
	unknown := map[string]bool{}
	for node, h := range s.State.Hosts {
		if h.Datacenter != "" { // it is in the catalog
			all[fleet.ReadNode(node)] = true
		}
		for service := range h.Services {
			all[fleet.ReadService(service)] = true
		}
		if h.Member && !all[f.cluster.ReadKey(cluster.MemberKey(node))] || h.Reported && !all[f.cluster.ReadKey(cluster.ReportKey(node))] {
			unknown[node] = true
		}
	}
	next := made{s.State, keys, &all, unknown}
	if old := f.made.sources; old != nil && maps.Equal(*old, all) {
		next.sources = old
	}
	f.made = next
	return next, nil
}

// sight is what Consul said about a token and the sources of a cluster.
type sight struct {
	at      time.Time // when it was asked about all of them
	sources *sources
	denied  map[consul.Right]bool
}

// denied returns which sources of a cluster the token may not read. Consul is asked about
// all of them once a minute, and at once about new ones.
func (t *viewerToken) denied(ctx context.Context, prefix, name string, of *sources) (map[consul.Right]bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, now := t.sights[name], time.Now()
	if now.Sub(known.at) >= rightsFor {
		known = sight{at: now, sources: &sources{}}
	}
	if known.sources == of {
		return known.denied, nil
	}
	var ask []consul.Right
	denied := map[consul.Right]bool{}
	for r := range *of {
		switch {
		case !(*known.sources)[r]:
			ask = append(ask, r)
		case known.denied[r]:
			denied[r] = true
		}
	}
	missing, err := fleet.New(t.client, prefix, name).Denied(ctx, ask)
	if err != nil {
		return nil, err
	}
	for _, r := range missing {
		denied[r] = true
	}
	t.sights[name] = sight{known.at, of, denied}
	return denied, nil
}

// hidden is what a viewer may not see of a snapshot. A nil one hides nothing.
type hidden struct {
	hosts, services, runs, stages, groups map[string]bool
	tails                                 map[tail]bool
	rights                                map[string]consul.Right // one that is missing, by kind and name
	missing                               []consul.Right          // all of them, in order
	names                                 names                   // of all of that but tails
}

// tail is the end of the output of a run on a host.
type tail struct{ run, node string }

// hiddenBy returns what is hidden from a viewer who may not read some sources of a cluster. It
// returns consul.ErrDenied if that is a document of the whole cluster, without which nothing
// can be shown.
func hiddenBy(c *fleet.Cluster, denied map[consul.Right]bool, unknown map[string]bool) (*hidden, error) {
	h := &hidden{
		hosts: maps.Clone(unknown), services: map[string]bool{}, runs: map[string]bool{}, stages: map[string]bool{}, groups: map[string]bool{},
		tails: map[tail]bool{}, rights: map[string]consul.Right{},
	}
	h.missing = slices.SortedFunc(maps.Keys(denied), func(a, b consul.Right) int {
		return strings.Compare(a.Resource+" "+a.Segment, b.Resource+" "+b.Segment)
	})
	var whole []consul.Right
	hide := func(set map[string]bool, kind, name string, r consul.Right) {
		if !set[name] {
			set[name], h.rights[kind+" "+name] = true, r
		}
	}
	for _, r := range h.missing {
		key, isKey := c.KeyOf(r)
		about := cluster.SubjectOf(key)
		switch {
		case r.Resource == "node":
			hide(h.hosts, "host", r.Segment, r)
		case r.Resource == "service" && r.Segment != cluster.AgentService:
			hide(h.services, "service", r.Segment, r)
		case !isKey:
			whole = append(whole, r)
		case about.Run != "" && key == cluster.TailKey(about.Run, about.Node):
			h.tails[tail{about.Run, about.Node}] = true
		case about.Run != "":
			hide(h.runs, "run", about.Run, r)
		case about.Node != "":
			hide(h.hosts, "host", about.Node, r)
		case about.Stage != "":
			hide(h.stages, "stage", about.Stage, r)
		case about.Group != "":
			hide(h.groups, "group", about.Group, r)
		default:
			whole = append(whole, r)
		}
	}
	if len(whole) > 0 {
		return nil, fmt.Errorf("%w: the token needs %s", consul.ErrDenied, rightsText(whole))
	}
	h.names = namesOf(h.hosts, h.services, h.runs, h.stages, h.groups)
	return h, nil
}

// rightsText lists rights in words.
func rightsText(rights []consul.Right) string {
	var texts []string
	for _, r := range rights[:min(len(rights), mostNames)] {
		texts = append(texts, fleet.RightText(r))
	}
	return text.FewOf(", ", texts, len(rights))
}

// refusal returns consul.ErrDenied with the right that is missing to see a host, a service, a
// run or a stage; nil: it is not hidden for lack of a right.
func (h *hidden) refusal(kind, name string) error {
	if h == nil {
		return nil
	}
	r, denied := h.rights[kind+" "+name]
	if !denied {
		return nil
	}
	return fmt.Errorf("%s %q: %w: the token needs %s", kind, name, consul.ErrDenied, fleet.RightText(r))
}

// print tells apart what is hidden.
func (h *hidden) print() string {
	var b strings.Builder
	for _, r := range h.missing {
		fmt.Fprintf(&b, "%s %q\n", r.Resource, r.Segment)
	}
	for _, node := range slices.Sorted(maps.Keys(h.hosts)) {
		fmt.Fprintf(&b, "%q\n", node)
	}
	return b.String()
}

// seenBy returns a snapshot as the holder of a token may see it. It returns consul.ErrDenied
// if nothing of it can be shown, or another class of package consul.
func (f *feed) seenBy(ctx context.Context, t *viewerToken, s *Snapshot) (*Snapshot, error) {
	m, err := f.sourcesOf(ctx, s)
	if err != nil {
		return nil, err
	}
	denied, err := t.denied(ctx, f.prefix, f.name, m.sources)
	if errors.Is(err, consul.ErrDenied) {
		return nil, fmt.Errorf("what the token may read of cluster %q: %w", f.name, err)
	}
	if err != nil {
		return nil, err
	}
	if len(denied) == 0 && len(m.unknown) == 0 {
		c := *s
		c.sources = m.sources
		return &c, nil
	}
	h, err := hiddenBy(f.cluster, denied, m.unknown)
	if err != nil {
		return nil, err
	}
	c := *f.cut(s, h)
	c.Generation, c.Stale, c.AsOf, c.sources = s.Generation, s.Stale, s.AsOf, m.sources
	return &c, nil
}

// maxCuts bounds how many cuts of a snapshot are kept.
const maxCuts = 16

// cut returns a snapshot without what is hidden. Viewers with the same denials share
// it.
func (f *feed) cut(s *Snapshot, h *hidden) *Snapshot {
	f.seeing.Lock()
	defer f.seeing.Unlock()
	if f.cutOf != s.State || len(f.cuts) >= maxCuts {
		f.cutOf, f.cuts = s.State, map[string]*Snapshot{}
	}
	print := h.print()
	if f.cuts[print] == nil {
		f.cuts[print] = s.without(h)
	}
	return f.cuts[print]
}

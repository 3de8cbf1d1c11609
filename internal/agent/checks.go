package agent

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// checks publishes which health checks of this node fail.
type checks struct {
	client  *consul.Client
	node    string
	shared  *concurrency.Latest[catalog.NodeChecks] // the registrar's, or nil
	log     hclog.Logger
	failing concurrency.Latest[[]string]
	own     concurrency.Latest[[]string] // those of them that the host itself can mend
}

// Watch calls handle with what fails, and whenever that changes, until ctx ends.
func (c *checks) Watch(ctx context.Context, handle func(failing []string)) error {
	return c.failing.Watch(ctx, handle)
}

// ownChecks tells the checks by which a host judges whether its configuration
// works. That gossip does not hear a host, or did not a moment ago, is nothing
// that its static workflow could mend.
type ownChecks struct{ *checks }

// Watch implements converge.Checks.
func (c ownChecks) Watch(ctx context.Context, handle func(failing []string)) error {
	return c.own.Watch(ctx, handle)
}

func mendable(all consul.HealthChecks) consul.HealthChecks {
	return slices.DeleteFunc(slices.Clone(all), func(h *consul.HealthCheck) bool { return h.CheckID == consul.GossipCheck })
}

// run follows the node's checks until ctx ends. While they cannot be read the
// last word counts.
func (c *checks) run(ctx context.Context) error {
	var seen concurrency.Latest[consul.HealthChecks]
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return seen.Watch(ctx, func(all consul.HealthChecks) { c.judge(ctx, &seen, all) }) })
	g.Go(func() error {
		return c.read(ctx, func(all consul.HealthChecks) {
			c.failing.Set(failing(all))
			seen.Set(all)
		})
	})
	return g.Wait()
}

// read calls handle with the node's checks and after each change. It uses the
// registrar's query, unless the configured name is another than the agent's.
func (c *checks) read(ctx context.Context, handle func(consul.HealthChecks)) error {
	if c.shared != nil {
		first, err := c.shared.Wait(ctx, func(catalog.NodeChecks) bool { return true })
		if err != nil {
			return err
		}
		if first.Node == c.node {
			return c.shared.Watch(ctx, func(n catalog.NodeChecks) { handle(n.Checks) })
		}
	}
	source := func(ctx context.Context, q consul.Query) (consul.HealthChecks, consul.Meta, error) {
		return c.client.HealthNode(ctx, c.node, q)
	}
	return consul.Watch(ctx, c.client, consul.Query{}, source, func(u consul.Update[consul.HealthChecks]) {
		if u.Err == nil && !u.Meta.Filtered {
			handle(u.Value)
		}
	})
}

// disagreement is the pause between two looks while the catalog and the local
// agent say different things.
const disagreement = 2 * time.Second

// judge sets what the host itself can mend. What fails in the catalog counts
// only as long as it does so on the host's own agent, too: while the servers have
// no leader the catalog stands still, and tells later what has long passed.
func (c *checks) judge(ctx context.Context, seen *concurrency.Latest[consul.HealthChecks], all consul.HealthChecks) {
	for {
		real, agreed := c.confirmed(ctx, mendable(all))
		c.own.Set(failing(real))
		if agreed || concurrency.Sleep(ctx, disagreement) != nil {
			return
		}
		if now, _ := seen.Get(); !reflect.DeepEqual(now, all) {
			return // judged next
		}
	}
}

// confirmed are all without those critical ones that pass on the local agent;
// agreed: there were none.
func (c *checks) confirmed(ctx context.Context, all consul.HealthChecks) (real consul.HealthChecks, agreed bool) {
	if len(failing(all)) == 0 {
		return all, true
	}
	local, err := c.client.AgentChecks(ctx, "")
	if err != nil {
		return all, false
	}
	real = slices.DeleteFunc(slices.Clone(all), func(h *consul.HealthCheck) bool {
		l := local[h.CheckID]
		return h.Status == consul.HealthCritical && l != nil && l.Status != consul.HealthCritical
	})
	return real, len(real) == len(all)
}

// failing are the critical checks, but what shows this host's own work: jorc's
// maintenance, and its sign of life, which also stays behind from an agent of
// another cluster.
func failing(all consul.HealthChecks) []string {
	list := []string{}
	presence := catalog.PresenceID("") // the service's name, whatever its cluster
	for _, h := range all {
		if h.Status != consul.HealthCritical || h.ServiceName == presence || consul.IsMaintenance(h.CheckID) && consul.StartedByJorc(h.Notes) {
			continue
		}
		text := h.ServiceName
		if text == "" {
			text = "host"
		}
		text += ": " + h.Name + " is " + h.Status
		if line, _, _ := strings.Cut(strings.TrimSpace(h.Output), "\n"); line != "" {
			text += fmt.Sprintf(": %.200s", line)
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return list
}

// maintenance is that of this node in Consul.
type maintenance struct {
	client *consul.Client
}

// Begin takes the node out of service; one that is so already, whoever did it,
// stays as it is.
func (m maintenance) Begin(ctx context.Context, reason string) error {
	_, there, err := m.notes(ctx)
	if err != nil || there {
		return err
	}
	return m.client.SetNodeMaintenance(ctx, true, reason)
}

// Lift ends maintenance that jorc began.
func (m maintenance) Lift(ctx context.Context) error {
	notes, there, err := m.notes(ctx)
	if err != nil || !there || !consul.StartedByJorc(notes) {
		return err
	}
	return m.client.SetNodeMaintenance(ctx, false, "")
}

func (m maintenance) notes(ctx context.Context) (notes string, there bool, err error) {
	have, err := m.client.AgentChecks(ctx, fmt.Sprintf("CheckID == %q", consul.NodeMaintenance))
	if c := have[consul.NodeMaintenance]; c != nil && err == nil {
		return c.Notes, true, nil
	}
	return "", false, err
}

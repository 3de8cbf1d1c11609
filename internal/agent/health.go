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
	own     concurrency.Latest[[]string] // the failing checks that the host's configuration can fix
}

// Watch calls handle with the failing checks, and whenever they change, until ctx
// ends.
func (c *checks) Watch(ctx context.Context, handle func(failing []string)) error {
	return c.failing.Watch(ctx, handle)
}

// ownChecks are the checks that decide whether the host's configuration works. The
// gossip check is not one of them: the static workflow cannot fix the host's
// connection to the gossip pool.
type ownChecks struct{ *checks }

// Watch implements converge.Checks.
func (c ownChecks) Watch(ctx context.Context, handle func(failing []string)) error {
	return c.own.Watch(ctx, handle)
}

// fixable returns the checks that the host's configuration can fix.
func fixable(all consul.HealthChecks) consul.HealthChecks {
	return slices.DeleteFunc(slices.Clone(all), func(h *consul.HealthCheck) bool { return h.CheckID == consul.GossipCheck })
}

// run follows the node's checks until ctx ends. While they cannot be read the last
// known state counts.
func (c *checks) run(ctx context.Context) error {
	var seen concurrency.Latest[consul.HealthChecks]
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return seen.Watch(ctx, func(all consul.HealthChecks) { c.setOwn(ctx, &seen, all) }) })
	g.Go(func() error {
		return c.read(ctx, func(all consul.HealthChecks) {
			c.failing.Set(failing(all))
			seen.Set(all)
		})
	})
	return g.Wait()
}

// read calls handle with the node's checks and after each change. It uses the
// registrar's query unless the configured node name differs from the Consul agent's.
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

// confirmInterval is the pause between two comparisons while the catalog and the
// local agent differ.
const confirmInterval = 2 * time.Second

// setOwn sets the failing checks that the host can fix. A check that is critical in
// the catalog counts only while it is critical on the local agent, too: while the
// servers have no leader the catalog does not change, and afterwards it still holds
// old states for a moment.
func (c *checks) setOwn(ctx context.Context, seen *concurrency.Latest[consul.HealthChecks], all consul.HealthChecks) {
	for {
		real, agreed := c.confirmed(ctx, fixable(all))
		c.own.Set(failing(real))
		if agreed || concurrency.Sleep(ctx, confirmInterval) != nil {
			return
		}
		if now, _ := seen.Get(); !reflect.DeepEqual(now, all) {
			return // the next call handles it
		}
	}
}

// confirmed returns all without the critical checks that are not critical on the
// local agent; agreed: the catalog and the agent did not differ.
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

// failing describes the critical checks, except the two that jorc itself causes:
// its maintenance mode, and its presence service, which an agent of another cluster
// may have left behind.
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

// maintenance is the maintenance mode of this node in Consul.
type maintenance struct {
	client *consul.Client
}

// Begin sets the node's maintenance mode. Maintenance that is already set, by jorc
// or by an operator, stays unchanged.
func (m maintenance) Begin(ctx context.Context, reason string) error {
	_, there, err := m.notes(ctx)
	if err != nil || there {
		return err
	}
	return m.client.SetNodeMaintenance(ctx, true, reason)
}

// Lift ends maintenance that jorc set.
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

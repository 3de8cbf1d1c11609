package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/leaders"
	"github.com/jorc/jorc/internal/profile"
)

// record returns the member record that the host's configuration describes.
func record(c *config.Config) (cluster.Record, error) {
	m := c.Member
	r := cluster.Record{Roles: m.Roles, Zone: m.Zone, Provides: slices.Clone(m.Provides)}
	for _, s := range c.Services {
		r.Provides = append(r.Provides, s.Name)
	}
	slices.Sort(r.Provides)
	r.Provides = slices.Compact(r.Provides)
	for _, q := range c.Requires {
		need, err := blocker.NeedOf(q)
		if err != nil {
			return r, err
		}
		r.Requires = append(r.Requires, cluster.Requirement{Target: q.Target, Count: need.Target.Count, For: q.For})
	}
	defined := make([]string, len(c.Workflows))
	for i, w := range c.Workflows {
		if defined[i] = w.Name; w.Disturbs || w.Reboots {
			r.Disturbing = append(r.Disturbing, w.Name)
		}
	}
	slices.Sort(r.Disturbing)
	r.Orchestrates = slices.Contains(orchestratedClusters(c), c.Cluster)
	r.Workflows, r.Static = cluster.ReportedWorkflows(defined), []string{}
	if s := c.Static; s != nil {
		r.Static = cluster.ReportedWorkflows(slices.DeleteFunc([]string{s.Workflow, s.Validation}, func(name string) bool { return name == "" }))
	}
	var err error
	if r.Params, err = paramsOf(m.Params); err != nil {
		return r, fmt.Errorf("member params: %w", err)
	}
	if r.Meta, err = paramsOf(m.Meta); err != nil {
		return r, fmt.Errorf("member meta: %w", err)
	}
	return r, nil
}

func paramsOf(have map[string]any) (profile.Params, error) {
	if len(have) == 0 {
		return nil, nil
	}
	params := make(profile.Params, len(have))
	for name, v := range have {
		value, err := profile.Of(v)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		params[name] = value
	}
	return params, nil
}

// memberParams watches the effective params of this host for templates.
type memberParams struct {
	agent *Agent
	conf  *config.Config
}

// Watch implements watch.Params.
func (p memberParams) Watch(ctx context.Context, handle func(profile.Params, error)) error {
	if err := p.agent.learnNode(ctx); err != nil {
		return err
	}
	node, err := p.agent.awaitNode(ctx)
	if err != nil {
		return err
	}
	return fleet.New(p.agent.client, p.conf.Prefix, p.conf.Cluster).ParamsOf(node).Watch(ctx, handle)
}

// runMember keeps the host's member record up to date, takes part in elections and
// runs the workflows of leaders, until ctx ends.
func (p *part) runMember(ctx context.Context) error {
	files, err := record(p.conf)
	if err != nil {
		return err
	}
	log := p.log.Named("cluster")
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		keeper := p.cluster.NewRecordSync(fleet.RecordSyncOptions{Node: p.node, Name: agentName(p.conf.StateDir), Files: files, Log: log})
		p.keeper.Store(keeper)
		if err := p.createCluster(ctx, log); err != nil {
			return nil // ctx ended
		}
		return keeper.Run(ctx)
	})
	g.Go(func() error {
		return leaders.NewElection(p.cluster.Cluster, leaders.ElectionOptions{Node: p.node, Log: log}).Run(ctx)
	})
	if p.conf.Member.OnLead != "" || p.conf.Member.OnStepDown != "" {
		g.Go(func() error {
			return p.onceSteppedDown(ctx, func(ctx context.Context) error {
				return leaders.Lead(ctx, p.cluster.Cluster, p.node, cluster.Timing{}, p.runLeaderWorkflows)
			})
		})
	}
	return g.Wait()
}

// Pauses between two attempts to create the cluster while Consul does not answer.
const (
	firstCreation = 100 * time.Millisecond
	lastCreation  = 10 * time.Second
)

// createCluster creates the host's cluster if it was never created and the agent's
// token may. It asks once in the life of a part: a cluster that an operator deletes
// does not come back by itself. It returns ctx's error.
func (p *part) createCluster(ctx context.Context, log hclog.Logger) error {
	name := p.cluster.Name()
	return concurrency.Retry(ctx, concurrency.NewBackoff(firstCreation, lastCreation), func(ctx context.Context) error {
		exists, err := p.cluster.Exists(ctx)
		if exists || errors.Is(err, consul.ErrDenied) || errors.Is(err, kv.ErrDamaged) || errors.Is(err, kv.ErrNewer) {
			return nil // it exists, or other readers of the profile report the error
		}
		created := false
		if err == nil {
			created, err = p.cluster.Init(ctx, fleet.InitOptions{})
		}
		switch {
		case created:
			log.Info("the cluster was created", "cluster", name)
		case errors.Is(err, consul.ErrUnreachable), errors.Is(err, consul.ErrOutcomeUnknown), errors.Is(err, consul.ErrRateLimited):
			return err
		case errors.Is(err, consul.ErrDenied):
			log.Warn("the cluster was never created, and this agent's token may not create it: "+fleet.CreationHint(name), "cluster", name)
		case err != nil:
			log.Warn("the cluster was never created, and cannot be: "+fleet.CreationHint(name), "cluster", name, "error", err)
		}
		return nil
	}, nil)
}

// agentName identifies this agent: the host's name, for people, and the owner that
// its services are marked with.
func agentName(stateDir string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return host + " " + catalog.Owner(stateDir)
}

// nameConflict reports that another agent uses this host's node name, and which one;
// empty: no such agent was noticed.
func (p *part) nameConflict() string {
	keeper := p.keeper.Load()
	if keeper == nil {
		return ""
	}
	other, seen := keeper.OtherAgent()
	if other == "" {
		return ""
	}
	return fmt.Sprintf("another agent, %s, was given the node name %s, too (noticed %s): stop one of the two, or give it a name of its own",
		other, p.node, seen.UTC().Format(time.RFC3339))
}

// joined returns nil when the cluster has the host's record, or an error when ctx
// has ended.
func (p *part) joined(ctx context.Context) error {
	if _, err := p.holds.is.Wait(ctx, func(member bool) bool { return member }); err != nil {
		return fmt.Errorf("the cluster could not be joined: %w", err)
	}
	return nil
}

// leaveWithin bounds how long a clean stop may take to leave the cluster.
const leaveWithin = 5 * time.Second

// leave ends the host's membership if the configuration sets leave_on_stop.
func (p *part) leave(ctx context.Context) {
	if p.conf.Member == nil || !p.conf.Member.LeaveOnStop {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	left, err := p.cluster.Leave(ctx, p.node, false)
	switch {
	case err != nil:
		p.log.Warn("the cluster could not be left; it shows this host as a member that is down", "cluster", p.cluster.Name(), "node", p.node, "error", err)
	case left:
		p.log.Info("left the cluster", "cluster", p.cluster.Name(), "node", p.node)
	}
}

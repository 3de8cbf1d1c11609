package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/stage"
)

// stagesOf returns the stages of c's templates, each once.
func stagesOf(c *config.Config) []config.Stage {
	var all []config.Stage
	for i := range c.Templates {
		s := c.Templates[i].Stage
		if s != nil && !slices.ContainsFunc(all, func(o config.Stage) bool { return o.Name == s.Name }) {
			all = append(all, *s)
		}
	}
	return all
}

// stageTemplates returns c's templates without everything but their stages.
func stageTemplates(c *config.Config) (all []config.Template) {
	for _, s := range stagesOf(c) {
		all = append(all, config.Template{Stage: &s})
	}
	return all
}

// runStages takes new content of the host's stages until ctx ends.
func (p *part) runStages(ctx context.Context) error {
	return p.stages.Run(ctx, p.stagePart(), stagesOf(p.conf))
}

// noticeNoGrants notices that no orchestrator runs while this host waits for a grant, until ctx
// ends.
func (p *part) noticeNoGrants(ctx context.Context) error {
	waits := func(r cluster.Report) bool {
		for _, s := range r.Stages {
			if s.Shown() == cluster.StageWaiting {
				return true
			}
		}
		return false
	}
	for {
		if _, err := p.report.Seen().Wait(ctx, waits); err != nil {
			return nil // ctx ended
		}
		err := p.unorchestrated.files.during(ctx, func() error {
			_, err := p.report.Seen().Wait(ctx, func(r cluster.Report) bool { return !waits(r) })
			return err
		})
		if err != nil {
			return nil // ctx ended
		}
	}
}

func (p *part) stagePart() stage.Part {
	return stage.Part{Host: p.host, Failing: p.failingChecks}
}

// failingChecks reads the failing checks of this host's Consul agent: of services, of
// which each must have an instance, and of the host itself; of all without services.
func (p *part) failingChecks(ctx context.Context, services []string) ([]string, error) {
	checks, err := p.client.AgentChecks(ctx, "")
	if err != nil {
		return nil, err
	}
	var counted consul.HealthChecks
	seen := map[string]bool{}
	for _, c := range checks {
		seen[c.ServiceName] = true
		if len(services) == 0 || c.ServiceName == "" || slices.Contains(services, c.ServiceName) {
			counted = append(counted, &consul.HealthCheck{
				CheckID: c.CheckID, Name: c.Name, Status: c.Status, Notes: c.Notes, Output: c.Output, ServiceName: c.ServiceName,
			})
		}
	}
	list := failing(counted)
	for _, name := range services {
		if !seen[name] {
			list = append(list, fmt.Sprintf("service %q has no check on this host", name))
		}
	}
	return list, nil
}

package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Stage makes new content of a template, and of all templates that go together with
// it, reach the hosts one after the other.
type Stage struct {
	Name        string
	MaxParallel string        // hosts at a time: a number, or a share such as "10%"
	Canary      int           `hcl:"canary,optional"` // hosts that come first, on their own
	ZoneByZone  bool          `hcl:"zone_by_zone,optional"`
	MinHealthy  time.Duration // how long the checks of the host must pass
	// NodeDeadline is how long the checks may take to pass for MinHealthy before the
	// change counts as failed.
	NodeDeadline time.Duration
	OnUnhealthy  string   `hcl:"on_unhealthy,optional"` // OnUnhealthyRestore, the default, or OnUnhealthyStop
	Services     []string `hcl:"services,optional"`     // whose instances on this host must be healthy; none: all checks
	// Bake, Gate and ApproveEach come between two steps, as in a rollout.
	Bake         time.Duration
	Gate         string `hcl:"gate,optional"`         // a workflow
	GateSamples  int    `hcl:"gate_samples,optional"` // how many times in a row it must pass
	GateInterval time.Duration
	GateTimeout  time.Duration
	ApproveEach  bool   `hcl:"approve_each,optional"`
	Window       string `hcl:"window,optional"` // as pace.ParseWindows reads it; empty: always
	Pos          string
}

// What happens to the files of a host whose checks do not pass.
const (
	OnUnhealthyRestore = "restore" // the old files return
	OnUnhealthyStop    = "stop"    // the new files stay for inspection
)

const (
	defaultMinHealthy = 10 * time.Second
	// settleTime is how much longer than min_healthy a host has by default.
	settleTime = 30 * time.Second
	// Those of a rollout's gate.
	defaultGateInterval = time.Minute
	defaultGateTimeout  = time.Hour
	// reservedStage is the name of rollouts in slots and grants.
	reservedStage = "rollout"
)

// stage decodes a block `stage "NAME"` of a template.
func (d *decoder) stage(t *Template) blockType {
	return blockType{label: "name", once: true, read: func(b *hcl.Block) {
		s := &Stage{
			Name: b.Labels[0], MaxParallel: "1", MinHealthy: defaultMinHealthy, OnUnhealthy: OnUnhealthyRestore,
			GateSamples: 1, GateInterval: defaultGateInterval, GateTimeout: defaultGateTimeout, Pos: position(b.TypeRange),
		}
		args := d.decode(b.Body, b.LabelRanges[0], s, custom{
			"max_parallel":  d.amount(&s.MaxParallel, 1, checkShare),
			"min_healthy":   d.interval(&s.MinHealthy),
			"node_deadline": d.interval(&s.NodeDeadline),
			"bake":          d.interval(&s.Bake),
			"gate_interval": d.interval(&s.GateInterval),
			"gate_timeout":  d.interval(&s.GateTimeout),
		}, nil)
		switch err := text.CheckSegment(s.Name); {
		case d.listing != nil:
		case err != nil:
			d.errorf(b.LabelRanges[0], "Invalid stage", "Stage %v.", err)
		case s.Name == reservedStage:
			d.errorf(b.LabelRanges[0], "Reserved name", "The name %q is reserved for rollouts ('jorc update show'): choose another.", s.Name)
		}
		args.between(0, math.MaxInt32, "canary")
		args.oneOf("on_unhealthy", OnUnhealthyRestore, OnUnhealthyStop)
		args.names("services", s.Services, text.CheckSegment)
		args.between(1, mostGateSamples, "gate_samples")
		args.valid("gate", checkGate(s.Gate))
		if args.has("window") {
			_, err := pace.ParseWindows(s.Window)
			args.valid("window", err)
		}
		for _, name := range []string{"gate_samples", "gate_interval", "gate_timeout"} {
			if s.Gate == "" && args.has(name) {
				args.valid(name, errors.New("needs \"gate\", the workflow that is asked"))
			}
		}
		if !args.has("node_deadline") {
			s.NodeDeadline = s.MinHealthy + settleTime
		} else if s.NodeDeadline <= s.MinHealthy {
			args.valid("node_deadline", fmt.Errorf("must be longer than \"min_healthy\" (%v), or no host could pass", s.MinHealthy))
		}
		d.stages = append(d.stages, place{value: s.Name, rng: b.LabelRanges[0], owner: t.Name})
		t.Stage = s
	}}
}

// mostGateSamples is the most that a gate may ask for.
const mostGateSamples = 1000

func checkGate(workflow string) error {
	if workflow == "" {
		return nil
	}
	return text.CheckName(workflow)
}

func checkShare(s string) error {
	number, percent := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || number[0] == '+':
		return errors.New(`must be a number of hosts, or a whole share such as "10%"`)
	case n < 1:
		return errors.New(`must be at least 1 or "1%"`)
	case percent && n > 100:
		return errors.New(`must be at most "100%"`)
	case n > math.MaxInt32:
		return errors.New("is too large")
	}
	return nil
}

// checkStages checks stages against the other settings of their templates, and
// gives the templates that go together with one its stage.
func (d *decoder) checkStages(c *Config) {
	owners := map[string]string{} // stage → the template with its block
	for _, p := range d.stages {
		if other, taken := owners[p.value]; taken {
			d.errorf(p.rng, "Duplicate stage", "Stage %q is that of template %q already: give the templates one \"together\", with the stage in one of them.", p.value, other)
			continue
		}
		if owners[p.value] = p.owner; len(owners) == pace.MostStages+1 {
			d.errorf(p.rng, "Too many stages", "A host has at most %d stages: give templates that change together one \"together\", and one stage.", pace.MostStages)
		}
		d.checkStage(c, p)
	}
	for i := range c.Templates {
		t := &c.Templates[i]
		if t.Stage != nil || t.Together == "" {
			continue
		}
		if at := slices.IndexFunc(c.Templates, func(o Template) bool { return o.Together == t.Together && o.Stage != nil }); at >= 0 {
			t.Stage = c.Templates[at].Stage
		}
	}
}

func (d *decoder) checkStage(c *Config, p place) {
	at := slices.IndexFunc(c.Templates, func(t Template) bool { return t.Name == p.owner })
	if at < 0 {
		return // the template has an error of its own
	}
	staged := &c.Templates[at]
	for i := range c.Templates {
		t := &c.Templates[i]
		if t != staged && (t.Together == "" || t.Together != staged.Together) {
			continue
		}
		switch {
		case t.Slot != "":
			d.errorf(p.rng, "Stage and slot", "Template %q has the stage %q and template %q the slot %q: a file changes host by host with either, not with both.", staged.Name, p.value, t.Name, t.Slot)
		case t.OnEdit == OnEditReport:
			d.errorf(p.rng, "Stage and on_edit", "Template %q has a stage: \"on_edit\" must be %q there.", t.Name, OnEditRestore)
		case t != staged && t.Stage != nil && t.Stage.Name != p.value:
			d.errorf(p.rng, "Two stages", "Templates %q and %q go together: only one of them can have a stage.", staged.Name, t.Name)
		}
	}
	if c.Member == nil {
		d.errorf(p.rng, "Stage without member", "Stage %q needs a member block: the orchestrator grants it to the members of the cluster.", p.value)
	}
}

package stage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// States of a Status.
const (
	StateStopped  = "stopped"  // a change failed, and no operator approved it
	StateWaiting  = "waiting"  // hosts have not reported their first content yet
	StateChanging = "changing" // hosts are at work, or wait for grants
	StateDone     = "done"     // all hosts have what their data says
)

// Status is one stage for people.
type Status struct {
	Stage       string      `json:"stage"`
	State       string      `json:"state"`
	Since       time.Time   `json:"since,omitzero"` // of the present change, or of the end of the last one
	MaxParallel string      `json:"max_parallel"`
	Canary      int         `json:"canary"`
	ZoneByZone  bool        `json:"zone_by_zone"`
	Gates       string      `json:"gates,omitempty"` // what comes between two steps, as the flags of 'jorc update trigger' set it
	ApproveEach bool        `json:"approve_each"`
	Windows     []string    `json:"windows,omitempty"` // of hosts: all must be open
	Counts      pace.Counts `json:"counts"`
	// Step is the present step, where the stage has gates; PassedGate is the last gate
	// that the stage passed.
	Step       *StepStatus      `json:"step,omitempty"`
	PassedGate *pace.PassedGate `json:"passed_gate,omitempty"`
	// Orchestrated: an agent holds the orchestrator's lock. Without it no host gets a grant.
	Orchestrated bool   `json:"orchestrated"`
	Stops        []Stop `json:"stops"`
	// Exempt is what hosts take although a rule of the cluster forbids it, and why.
	Exempt []Exemption    `json:"exempt,omitempty"`
	Hosts  []HostProgress `json:"hosts,omitempty"` // in the order in which a change reaches them
}

// StepStatus is one step for people.
type StepStatus struct {
	Number   int                `json:"number"`
	Text     string             `json:"text"` // the canary, zone "a" or batch 2
	Hosts    []string           `json:"hosts"`
	Gate     *pace.GateProgress `json:"gate,omitempty"` // once the step is done
	Approved *cluster.Hold      `json:"approved,omitempty"`
	Waits    []string           `json:"waits"` // what the next step waits for
}

// HostProgress is how far one host of a stage is. Since is of what Changed is about.
type HostProgress struct {
	pace.HostProgress
	// Files is what it does with its files, or what came of the last grant: changing, settling, restoring, done, failed,
	// restored; empty: it has accepted none, or nothing is left of it.
	Files   string   `json:"files"`
	Changed []string `json:"changed"`         // names of what changed: of what it waits for, else of its last attempt
	Waits   string   `json:"waits,omitempty"` // why it has no grant, or no content; also beside a failure
}

// detail is what the host waits for, what it does, or why it failed.
func (h HostProgress) detail(reason string) string {
	switch h.State {
	case pace.Failed:
		if h.Files == cluster.StageRestored {
			reason = strings.TrimSuffix("its old files are restored: "+reason, ": ")
		}
		if h.Waits != "" {
			reason += "; it waits: " + h.Waits
		}
		return strings.TrimPrefix(reason, "; ")
	case pace.Working:
		return strings.TrimSuffix(doing(h.Files)+": "+reason, ": ")
	}
	return h.Waits
}

// doing is what a host at work does with its files.
func doing(files string) string {
	switch files {
	case cluster.StageSettling:
		return "its checks have to pass"
	case cluster.StageRestoring:
		return "its old files are being restored"
	}
	return "its files are replaced"
}

// Describe returns what a plan would be made of, for people. It is a pure function.
func Describe(d Documents, s State, orchestrated bool, now time.Time) Status {
	p := newPlanner(d.Book, d.Stops, s, now)
	sum := p.summary()
	st := Status{
		Stage: s.Stage, State: sum.State, Counts: sum.Counts, Since: d.Book.Since, Orchestrated: orchestrated,
		MaxParallel: p.policy.MaxParallel.String(), Canary: p.policy.Canary, ZoneByZone: p.policy.ZoneByZone, Stops: []Stop{}, Hosts: []HostProgress{},
	}
	wanting := 0
	p.outlook()
	outlook := p.survey.Outlook()
	p.Book = d.Book
	for _, h := range p.hosts {
		r := h.Report
		one := HostProgress{HostProgress: pace.HostProgress{Node: h.Node, Zone: h.Zone, State: h.Progress()}, Changed: []string{}}
		reason := ""
		if !r.TakenBack() {
			one.Since, one.Files, one.Changed, reason = h.Answer.Since, r.State, r.Taken.Names(), r.Reason
		}
		if r.Wants != "" && !r.Open() {
			one.Changed, one.Waits = r.Changed.Names(), p.waitsFor(h, orchestrated, outlook)
			if !r.Unhealthy() || r.Wants != h.Answer.Tag {
				one.Since = r.WantsSince
			}
			if wanting++; !d.Book.Active && (wanting == 1 || r.WantsSince.Before(st.Since)) {
				st.Since = r.WantsSince // no host has taken it yet
			}
		}
		if r.Silent() {
			one.Waits = "its first content is not rendered yet"
		}
		one.Detail = one.detail(reason)
		st.Hosts = append(st.Hosts, one)
	}
	if p.policy.Gated() {
		st.Gates, st.ApproveEach, st.PassedGate = p.policy.GatesString(), p.policy.ApproveEach, d.Book.PassedGate
	}
	if step := d.Book.Step; step != nil && p.policy.Gated() {
		st.Step = &StepStatus{
			Number: step.Number, Text: step.String(), Hosts: step.HostNames(), Gate: step.Gate, Approved: step.Approved, Waits: p.stepWaits(),
		}
	}
	for _, h := range p.hosts {
		if text := h.Report.Policy.Window; text != "" && !slices.Contains(st.Windows, text) {
			st.Windows = append(st.Windows, text)
		}
	}
	st.Stops, st.Exempt = append(st.Stops, d.Stops.Stops...), d.Stops.Exempt
	return st
}

// waitsFor returns why a host that wants new content has no grant.
func (p *planner) waitsFor(h *ranked, orchestrated bool, outlook pace.Outlook) string {
	if !orchestrated {
		return "no orchestrator runs"
	}
	return outlook.Why(*h.in).Text(p.survey.Words.Noun)
}

// Count counts who is out of service in a state of a cluster; nil without a budget.
type Count func(ctx context.Context, c *fleet.Cluster, s *cluster.State) (*pace.Account, error)

// Show reads one stage of c, or all of them if name is empty. A nil count does not know what
// the budget of the cluster leaves. It returns ErrNone for one that no host reports, or the
// error of count.
func Show(ctx context.Context, c *fleet.Cluster, name string, count Count, now time.Time) ([]Status, error) {
	state, err := c.Load(ctx, cluster.NeedState)
	if err != nil {
		return nil, err
	}
	return show(ctx, c, &state, name, count, now)
}

// show is Show of a state that was read.
func show(ctx context.Context, c *fleet.Cluster, state *cluster.State, name string, count Count, now time.Time) ([]Status, error) {
	orchestrated, err := fleet.Orchestrated(ctx, c.Store())
	if err != nil {
		return nil, err
	}
	hosts := HostsOf(state)
	names := slices.Sorted(maps.Keys(hosts))
	if name != "" {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("stage %q: %w%s", name, ErrNone, text.Unknown(name, "stages", names))
		}
		names = []string{name}
	}
	var places *pace.Account
	if count != nil {
		if places, err = count(ctx, c, state); err != nil {
			return nil, err
		}
	}
	all := []Status{}
	for _, name := range names {
		d, err := New(c.Store()).Load(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, Describe(d, State{
			Stage: name, Halted: state.Control.HaltedText(), Freezes: state.Control.Freezes, Hosts: hosts[name], Places: places,
		}, orchestrated, now))
	}
	return all, nil
}

// Names returns the stages that hosts report.
func Names(ctx context.Context, c *fleet.Cluster) ([]string, error) {
	state, err := c.Load(ctx, cluster.NeedReports)
	return slices.Sorted(maps.Keys(HostsOf(&state))), err
}

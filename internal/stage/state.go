package stage

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// maxHold bounds what is said of a hold, in bytes.
const maxHold = 200

// Expecting returns the names of a cluster's stages in order, and those of which something is expected of a host.
func Expecting(s *cluster.State) (names []string, busy map[string]bool) {
	busy = map[string]bool{}
	for _, node := range s.Nodes() {
		h := s.Hosts[node]
		grants := strings.Count(h.Grants.Value, `"`+cluster.FilesChange(""))
		for name, r := range h.Report.Stages {
			state := r.Shown()
			busy[name] = busy[name] || state != "" && state != cluster.StageDone
			if grants > 0 && strings.Contains(h.Grants.Value, `"`+cluster.FilesChange(name)+`"`) {
				grants--
			}
		}
		if grants == 0 {
			continue
		}
		for name := range leftBy(h, change.GrantsIn(h)) {
			busy[name] = true
		}
	}
	return slices.Sorted(maps.Keys(busy)), busy
}

// leftBy returns the stages that a host no longer has, but for its grant.
func leftBy(h *cluster.Host, grants kv.Entry[change.Grants]) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, g := range grants.Value.All {
			name, files := cluster.StageOf(g.Change)
			if _, has := h.Report.Stages[name]; !files || has {
				continue
			}
			if part := change.PartOf(g.Change, g, h.Report.Answered(g.Change), ""); part.Granted() && !yield(name) {
				return
			}
		}
	}
}

// HostsOf returns the hosts of stages of a cluster, also hosts that have left one with a grant; without names of all stages.
// Only members are granted something.
func HostsOf(s *cluster.State, names ...string) map[string][]Host {
	all := map[string][]Host{}
	other := func(name string) bool { return len(names) > 0 && !slices.Contains(names, name) }
	for _, node := range s.Nodes() {
		h := s.Hosts[node]
		grants := grantsOf(h)
		for name, report := range h.Report.Stages {
			if other(name) {
				continue
			}
			all[name] = append(all[name], hostOf(s, h, name, report, grants))
		}
		for name := range leftBy(h, grants) {
			if other(name) {
				continue
			}
			one := hostOf(s, h, name, cluster.StageReport{}, grants)
			one.Left = true
			all[name] = append(all[name], one)
		}
	}
	return all
}

// grantsOf decodes what is granted to a host, if that may be something of a stage.
func grantsOf(h *cluster.Host) (e kv.Entry[change.Grants]) {
	if len(h.Report.Stages) == 0 && !strings.Contains(h.Grants.Value, `"`+cluster.FilesChange("")) {
		return e
	}
	return change.GrantsIn(h)
}

func hostOf(s *cluster.State, h *cluster.Host, name string, report cluster.StageReport, grants kv.Entry[change.Grants]) Host {
	one := Host{
		Host: pace.Host{
			Node: h.Node, Zone: h.Record.Zone, Roles: s.Roles(h), Up: h.Condition.Agent == cluster.AgentUp,
			Service: h.Condition.OutOfService(false), HoldFile: text.Line(h.Kept(), maxHold),
		},
		Report: report, Answer: h.Report.Answered(cluster.FilesChange(name)), Grants: grants,
	}
	if h.Condition.Drained() {
		one.Drained = cluster.DrainedText
	}
	if hold, held := s.Control.Held(h.Node, s.Roles(h)); held {
		one.Hold = text.Line(hold.String(), maxHold)
	}
	return one
}

// Holding is why a stage keeps a host out of service.
type Holding struct {
	Text   string
	Since  time.Time
	Failed bool // its last change failed, and the new files stay
	// Offered: it was only offered a grant.
	Offered bool
	// GivenUp: an operator gave up on it, so that it no longer counts.
	GivenUp bool
}

// HoldsOf returns why the stages of a host keep it out of service, of the first stage that does, and its name; without
// one that is empty. grants are what the host is granted, and documents those of the stages.
func HoldsOf(h *cluster.Host, grants kv.Entry[change.Grants], documents map[string]Documents) (why Holding, stage string) {
	names := slices.Collect(maps.Keys(h.Report.Stages))
	for _, g := range grants.Value.All {
		if name, files := cluster.StageOf(g.Change); files && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		one := Host{Host: pace.Host{Node: h.Node}, Report: h.Report.Stages[name], Answer: h.Report.Answered(cluster.FilesChange(name)), Grants: grants}
		if why, out := documents[name].Stops.holds(name, one); out {
			return why, name
		}
	}
	return Holding{}, ""
}

// holds returns why a stage keeps a host out of service; out is false if it does not.
func (s Stops) holds(stage string, h Host) (why Holding, out bool) {
	name := fmt.Sprintf("of stage %q", stage)
	switch part := h.part(stage); {
	case part.Open():
		return Holding{Text: "it has a grant " + name, Since: part.Accepted, GivenUp: part.GivenUp()}, true
	case part.Offered():
		return Holding{Text: "it is offered a grant " + name, Since: part.Since, Offered: true}, true
	case s.bad(h):
		return Holding{Text: "a change " + name + " failed on it", Since: h.Answer.Since, Failed: true}, true
	}
	return Holding{}, false
}

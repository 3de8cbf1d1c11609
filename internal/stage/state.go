package stage

import (
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// maxHold bounds what is said of a hold, in bytes.
const maxHold = 200

// HostsOf returns the hosts of each stage of a cluster. Only members have turns.
func HostsOf(s *cluster.State) map[string][]Host {
	all := map[string][]Host{}
	for _, node := range s.Nodes() {
		h := s.Hosts[node]
		for name, report := range h.Report.Stages {
			all[name] = append(all[name], hostOf(s, h, report))
		}
	}
	return all
}

func hostOf(s *cluster.State, h *cluster.Host, report cluster.StageReport) Host {
	one := Host{
		Node: h.Node, Zone: h.Record.Zone, Roles: s.Roles(h), Up: h.Condition.Agent == cluster.AgentUp,
		Out: h.Condition.OutOfService(false) != pace.InService, Hold: h.Kept(), Report: report,
		Critical: h.Condition.OutOfService(false) == pace.OutCritical, Drained: h.Condition.Drained(),
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
}

// Holds returns why the stage keeps a host out of service that reports r; out is false if
// it does not.
func (d Documents) Holds(node string, r cluster.StageReport) (why Holding, out bool) {
	name := fmt.Sprintf("of stage %q", d.Stage)
	turn, offered := d.Turns.Open[node]
	switch {
	case r.Open():
		return Holding{Text: "it has a turn " + name, Since: r.Since}, true
	case offered && turn.ID != r.Turn: // a turn that has ended stays until the next plan
		return Holding{Text: "it is offered a turn " + name, Since: turn.Since}, true
	case d.Stops.bad(node, r):
		return Holding{Text: "a change " + name + " failed on it", Since: r.Since, Failed: true}, true
	}
	return Holding{}, false
}

package catalog

import (
	"maps"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/consul"
)

// stopNote begins the reason of a maintenance mode that a stopping jorc set;
// only such a one is lifted by the next start.
const stopNote = "jorc: stopped"

// atAgent is what the local agent says it has.
type atAgent struct {
	services map[string]*consul.AgentService
	checks   map[string]*consul.AgentCheck
}

type verb int

const (
	doNothing  verb = iota // it stands as it should
	doRegister             // it is missing, or not as it should be
	doRefuse               // somebody else registered this id
	doRemove               // ours, and no longer wanted
)

// action is what one service needs.
type action struct {
	verb  verb
	id    string
	want  *registration // nil for doRemove
	stale []string      // ids of the service's checks that are to go after registering
	lift  bool          // jorc's own maintenance mode is to be lifted
	owner string        // of the service in the way, for doRefuse; may be empty
	check string        // the id in the way, for doRefuse, when it is a check's
}

// plan compares what is wanted with what the agent has. Only services marked
// as owner's are ever changed or removed; removals come last.
func plan(want []*registration, have atAgent, owner string) []action {
	byService := map[string][]string{}
	for id, c := range have.checks {
		byService[c.ServiceID] = append(byService[c.ServiceID], id)
	}
	wanted := make(map[string]bool, len(want))
	actions := make([]action, 0, len(want))
	for _, r := range want {
		wanted[r.id] = true
		actions = append(actions, planOne(r, have, byService[r.id], owner))
	}
	for _, id := range slices.Sorted(maps.Keys(have.services)) {
		if !wanted[id] && have.services[id].Meta[MetaOwner] == owner {
			actions = append(actions, action{verb: doRemove, id: id})
		}
	}
	return actions
}

func planOne(r *registration, have atAgent, checkIDs []string, owner string) action {
	a := action{verb: doRegister, id: r.id, want: r}
	for _, c := range r.checks {
		if holder, foreign := heldCheck(c.id, r.id, have, owner); foreign {
			a.verb, a.owner, a.check = doRefuse, holder, c.id
			return a
		}
	}
	s, there := have.services[r.id]
	if !there {
		return a
	}
	if holder := s.Meta[MetaOwner]; holder != owner {
		a.verb, a.owner = doRefuse, holder
		return a
	}
	missing := map[string]bool{}
	for _, c := range r.checks {
		missing[c.id] = true
	}
	for _, id := range checkIDs {
		switch {
		case missing[id]:
			delete(missing, id)
		case id == maintenanceCheck(r.id):
			a.lift = strings.HasPrefix(have.checks[id].Notes, stopNote)
		default:
			a.stale = append(a.stale, id)
		}
	}
	slices.Sort(a.stale)
	if s.Meta[MetaHash] == r.hash && len(missing) == 0 {
		a.verb, a.stale = doNothing, nil
	}
	return a
}

// heldCheck tells whether a check's id is that of somebody else's check of
// another service, or of the node. Among ours it may move.
func heldCheck(checkID, serviceID string, have atAgent, owner string) (holder string, foreign bool) {
	at, ok := have.checks[checkID]
	if !ok || at.ServiceID == serviceID {
		return "", false
	}
	if s, ok := have.services[at.ServiceID]; ok {
		return s.Meta[MetaOwner], s.Meta[MetaOwner] != owner
	}
	return "", true
}

// maintenanceCheck is the id that Consul gives to a service's maintenance mode.
func maintenanceCheck(serviceID string) string { return "_service_maintenance:" + serviceID }

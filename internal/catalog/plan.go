package catalog

import (
	"maps"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/consul"
)

// stopNote is the prefix of the reason of a maintenance mode that jorc set when
// it stopped; the next start lifts only such a mode.
const stopNote = "jorc: stopped"

// atAgent holds the services and checks that the local agent has.
type atAgent struct {
	services map[string]*consul.AgentService
	checks   map[string]*consul.AgentCheck
}

type verb int

const (
	doNothing  verb = iota // the registration is as wanted
	doRegister             // the registration is missing or differs
	doRefuse               // another owner registered this id
	doRemove               // ours, and no longer wanted
)

// action is the change that one service needs.
type action struct {
	verb  verb
	id    string
	want  *registration // nil for doRemove
	stale []string      // ids of the service's checks to deregister after registering
	lift  bool          // end jorc's own maintenance mode
	owner string        // for doRefuse: the owner of the conflicting service; may be empty
	check string        // for doRefuse: the conflicting id, if it is a check's
}

// plan compares the wanted registrations with the agent's. Only services marked
// as owner's are changed or removed; removals come last.
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

// heldCheck reports whether a check's id is in use by the node or by another
// owner's service. It may move between our own services.
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

// maintenanceCheck returns the id of the check of a service's maintenance mode.
func maintenanceCheck(serviceID string) string { return "_service_maintenance:" + serviceID }

package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// Why Publish and Withdraw leave a service alone.
var (
	// ErrForeign: the id is held by a registration that is not this jorc's.
	ErrForeign = errors.New("registered by somebody else")
	// ErrConfigured: the service belongs to the agent's configuration.
	ErrConfigured = errors.New("part of the agent's configuration")
)

// Published is what became of a service given to Publish.
type Published struct {
	ID string
	// Daemon: a jorc agent runs beside this Consul agent and looks after it.
	Daemon bool
	// Scripts is the number of its checks that only a daemon can run; without one
	// they stay critical.
	Scripts int
}

// Publish registers one service with the local agent and stores its definition
// below stateDir, where the daemon of that directory takes it up. It is safe to
// repeat. Errors are ErrForeign, ErrConfigured, those of the client, or the file
// system's; a service that could not be registered is not stored.
func Publish(ctx context.Context, client *consul.Client, stateDir string, s config.Service) (Published, error) {
	if s.ID == "" {
		s.ID = s.Name
	}
	owner := Owner(stateDir)
	r := newRegistration(s, owner, leastTTL)
	p := Published{ID: s.ID}
	for _, c := range r.checks {
		if c.runByJorc() {
			p.Scripts++
		}
	}
	have, err := askAgent(ctx, client)
	if err != nil {
		return p, err
	}
	p.Daemon = daemon(have, owner)
	a := plan([]*registration{r}, have, owner)[0]
	wasStored, err := isStored(stateDir, s.ID)
	switch {
	case err != nil:
		return p, err
	case a.verb == doRefuse:
		return p, fmt.Errorf("service %q: %w: choose another id, or deregister that one first", s.ID, ErrForeign)
	case have.services[s.ID] != nil && !wasStored && p.Daemon:
		return p, fmt.Errorf("service %q: %w: change it there", s.ID, ErrConfigured)
	}
	if err := store(stateDir, s); err != nil {
		return p, err
	}
	if a.verb == doNothing {
		return p, nil
	}
	if err := put(ctx, client, a, func(string) string { return "" }); err != nil {
		if !wasStored && !errors.Is(err, consul.ErrOutcomeUnknown) {
			_, undo := unstore(stateDir, s.ID)
			err = errors.Join(err, undo)
		}
		return p, explain(err, a)
	}
	return p, nil
}

// Withdraw deregisters one service from the local agent, whoever registered it,
// and forgets its stored definition. Errors are consul.ErrNotFound when there
// is no such service, ErrConfigured when the daemon would register it again at
// once, those of the client, or the file system's.
func Withdraw(ctx context.Context, client *consul.Client, stateDir, id string) error {
	have, err := askAgent(ctx, client)
	if err != nil {
		return err
	}
	owner := Owner(stateDir)
	stored, err := isStored(stateDir, id)
	if err != nil {
		return err
	}
	s, there := have.services[id]
	if there && !stored && s.Meta[MetaOwner] == owner && daemon(have, owner) {
		return fmt.Errorf("service %q: %w: remove it there", id, ErrConfigured)
	}
	if _, err := unstore(stateDir, id); err != nil {
		return err
	}
	if !there && !stored {
		return fmt.Errorf("service %q: %w at this agent", id, consul.ErrNotFound)
	}
	// The daemon may have been faster.
	if err := client.DeregisterService(ctx, id); err != nil && !errors.Is(err, consul.ErrNotFound) {
		return explain(err, action{id: id})
	}
	return nil
}

// daemon tells whether a jorc agent of owner is alive: its own service says so.
func daemon(have atAgent, owner string) bool {
	for _, c := range have.checks {
		s, ok := have.services[c.ServiceID]
		if ok && s.Service == PresenceName && s.Meta[MetaOwner] == owner && c.Status == consul.HealthPassing {
			return true
		}
	}
	return false
}

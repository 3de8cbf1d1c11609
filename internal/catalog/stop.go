package catalog

import (
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

// stopTimeout bounds what a clean stop does.
const stopTimeout = 5 * time.Second

// SetOnStop replaces what a clean stop does with services that do not say so
// themselves: one of the OnStop constants, OnStopKeep for "".
func (r *Registrar) SetOnStop(policy string) {
	if policy == "" {
		policy = OnStopKeep
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.o.OnStop = policy
	r.combine()
}

// stop does with each service what on_stop says. Nothing is asked of Consul for
// services that are kept.
func (r *Registrar) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	r.mu.Lock()
	want, usual := r.wanted, r.o.OnStop
	r.mu.Unlock()
	var have atAgent
	for _, w := range want {
		policy := w.onStop
		if policy == "" {
			policy = usual
		}
		if policy == OnStopKeep {
			continue
		}
		if have.services == nil {
			var err error
			if have, err = askAgent(ctx, r.client); err != nil {
				r.log.Warn("services stay as they are: the agent does not answer", "error", err)
				return
			}
		}
		if s, ok := have.services[w.id]; !ok || s.Meta[MetaOwner] != r.o.Owner {
			continue
		}
		if err := r.stopOne(ctx, w.id, policy); err != nil && !errors.Is(err, consul.ErrNotFound) {
			r.log.Warn("service stays as it is", "id", w.id, "error", err)
		}
	}
}

// stopOne carries out a policy other than keep. A maintenance mode that is
// there already, whoever set it, stays as it is.
func (r *Registrar) stopOne(ctx context.Context, id, policy string) error {
	if policy == OnStopDeregister {
		return r.client.DeregisterService(ctx, id)
	}
	return r.client.SetMaintenance(ctx, id, true, stopNote)
}

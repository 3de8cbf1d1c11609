package slots

import (
	"context"
	"errors"
)

// giveUp leaves the group, if Consul answers within closeWithin.
func (a *attempt) giveUp(ctx context.Context, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	var err error
	if a.lined && !errors.Is(why, ErrTaken) {
		if a.outside {
			err = persist(ctx, func() error { return a.group.leaveOutside(ctx, a.name) })
		}
		if err == nil {
			_, err = a.change(ctx, leave(a.name))
		}
	}
	if a.session != nil {
		a.putAway(ctx, err == nil)
	}
}

// putAway gives the session back, or ends it when it may hold something.
func (a *attempt) putAway(ctx context.Context, empty bool) {
	if empty {
		a.slots.sessions.give(ctx, a.session)
		return
	}
	end(ctx, a.session)
}

// leave takes names out of the group.
func leave(names ...string) alteration {
	return func(_ context.Context, now Group, _ *changing) (Group, error) { return now.Leave(names...), nil }
}

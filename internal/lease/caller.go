package lease

import "context"

// Holder is what callers on this host ask: the control socket, FleetLock.
type Holder interface {
	// Begin asks for a lease and waits until the caller may go ahead: Ready, or Covered. told gets
	// each status on the way that differs from the one before. It returns a *Refusal where waiting cannot
	// help before ctx's deadline, or with ctx's end, then with what it waited for; wrong requests
	// are a *Refusal, too.
	Begin(ctx context.Context, r Request, told func(Status)) (Status, error)
	// End ends the lease of id; empty: whose it ever is. It waits until the host is healthy and the lease is
	// over. Without a lease it returns nil at once; with that of another id a *Refusal of kind
	// HeldByOther. When ctx ends first it returns a *Refusal of kind NotHealthy that names the checks;
	// the lease ends later by itself.
	End(ctx context.Context, id string) error
	// Status returns this host's lease.
	Status() Status
}

package fleetlock

import "time"

// HoldFor sets how long a request is held.
func (h *Handler) HoldFor(d time.Duration) { h.hold = d }

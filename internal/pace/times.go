package pace

import "time"

// freezing is what freezes say at one moment. Where a freeze ends takes longer to find out than
// all else about a host: it is computed once for all hosts of which the same freezes are.
type freezing struct {
	freezes Freezes
	now     time.Time
	known   map[uint64]frozenHosts // by the freezes that hold, as bits
}

// frozenHosts are the hosts of which the same freezes are.
type frozenHosts struct {
	Frozen
	frozen bool
	begins time.Time // the next freeze; zero: none
}

func newFreezing(all Freezes, now time.Time) *freezing {
	return &freezing{freezes: all, now: now, known: map[uint64]frozenHosts{}}
}

// of returns what freezes say of a host with roles; none: of the whole cluster.
func (f *freezing) of(roles []string) frozenHosts {
	if len(f.freezes) == 0 {
		return frozenHosts{}
	}
	if len(f.freezes) > mostFreezes { // only in a control that jorc did not write
		return f.compute(roles)
	}
	var held uint64
	for i := range f.freezes {
		if f.freezes[i].holds(roles) {
			held |= 1 << i
		}
	}
	same, known := f.known[held]
	if !known {
		same = f.compute(roles)
		f.known[held] = same
	}
	return same
}

func (f *freezing) compute(roles []string) (h frozenHosts) {
	h.Frozen, h.frozen = f.freezes.At(roles, f.now)
	h.begins = f.freezes.Begins(roles, f.now)
	return h
}

// windowChange is EachChange of the windows of the change.
func (v *Survey) windowChange() time.Time {
	if v.windows == nil {
		at := EachChange(v.windowLists(), v.now)
		v.windows = &at
	}
	return *v.windows
}

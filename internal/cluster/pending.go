package cluster

import "errors"

// Pendency says whether a host has an update to make. Its numbers are those
// that scripts know.
type PendingChange int

// Pendencies.
const (
	UpdatePending    PendingChange = 0
	UpToDate         PendingChange = 1
	PendingUnknown   PendingChange = 2 // it cannot be told
	NoDesiredVersion PendingChange = 3 // no version was triggered, or this host has none and Consul is unreachable
)

// PendencyOf compares the desired version, as Desired returned it, with that of
// the version file, as ReadVersionFile returned it.
func PendingChangeOf(desired string, desiredErr error, local string, localErr error) PendingChange {
	known := desired != "" && desiredErr == nil
	switch {
	case desired == "" && desiredErr == nil:
		return NoDesiredVersion
	case !known && errors.Is(localErr, ErrNoVersion):
		return NoDesiredVersion
	case !known:
		return PendingUnknown
	case localErr == nil && local == desired:
		return UpToDate
	case localErr == nil, errors.Is(localErr, ErrNoVersion), errors.Is(localErr, ErrVersionFile):
		return UpdatePending // whatever the file says, it is not the desired version
	}
	return PendingUnknown
}

func (p PendingChange) String() string {
	switch p {
	case UpdatePending:
		return "pending"
	case UpToDate:
		return "none"
	case PendingUnknown:
		return "unknown"
	default:
		return "no version"
	}
}

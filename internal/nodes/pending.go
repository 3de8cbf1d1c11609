package nodes

import "errors"

// Pendency says whether a host has an update to make. Its numbers are those
// that scripts know.
type Pendency int

// Pendencies.
const (
	UpdatePending  Pendency = 0
	UpToDate       Pendency = 1
	PendencyHidden Pendency = 2 // it cannot be told
	PendencyNew    Pendency = 3 // no version was triggered, or this host has none and Consul is unreachable
)

// PendencyOf compares the desired version, as Desired returned it, with that of
// the version file, as ReadVersionFile returned it.
func PendencyOf(desired string, desiredErr error, local string, localErr error) Pendency {
	known := desired != "" && desiredErr == nil
	switch {
	case desired == "" && desiredErr == nil:
		return PendencyNew
	case !known && errors.Is(localErr, ErrNoVersion):
		return PendencyNew
	case !known:
		return PendencyHidden
	case localErr == nil && local == desired:
		return UpToDate
	case localErr == nil, errors.Is(localErr, ErrNoVersion), errors.Is(localErr, ErrVersionFile):
		return UpdatePending // whatever the file says, it is not the desired version
	}
	return PendencyHidden
}

func (p Pendency) String() string {
	switch p {
	case UpdatePending:
		return "pending"
	case UpToDate:
		return "none"
	case PendencyHidden:
		return "unknown"
	default:
		return "no version"
	}
}

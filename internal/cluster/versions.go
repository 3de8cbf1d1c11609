package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RunningVersions returns the versions that run on any node, in order.
func (s *State) RunningVersions() []string {
	versions := map[string]bool{}
	for _, h := range s.Hosts {
		versions[h.Report.Version] = true
	}
	delete(versions, "")
	return slices.Sorted(maps.Keys(versions))
}

// HostsRunning returns the nodes that run version, in order.
func (s *State) HostsRunning(version string) []string {
	hosts := []string{}
	for node, h := range s.Hosts {
		if h.Report.Version == version {
			hosts = append(hosts, node)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// OtherHost is a host that does not run the version that it should.
type OtherHost struct {
	Host    string `json:"host"`
	Version string `json:"version"` // empty: none is known
	// Why is what keeps it from the version, as far as that is known.
	Why string `json:"why,omitempty"`
}

// HostsNotRunning returns the hosts of a list that do not run version, in order, and
// what they run.
func (s *State) HostsNotRunning(version string, hosts []string) []OtherHost {
	all := []OtherHost{}
	for _, node := range slices.Compact(slices.Sorted(slices.Values(hosts))) {
		running := ""
		if h := s.Hosts[node]; h != nil {
			running = h.Report.Version
		}
		if running != version {
			all = append(all, OtherHost{Host: node, Version: running})
		}
	}
	return all
}

// Uniqueness says whether one version is the only one that runs.
type Uniqueness struct {
	Version  string         `json:"version"`
	Single   bool           `json:"single"`
	Found    bool           `json:"found"`  // some host runs it
	Others   []OtherVersion `json:"others"` // versions that hosts run which are there
	Detached []DetachedHost `json:"apart"`  // hosts that run another one, but do not count
}

// OtherVersion is another version that runs.
type OtherVersion struct {
	Version  string   `json:"version"`
	Hosts    int      `json:"hosts"`
	Examples []string `json:"examples"` // the first of them
}

// DetachedHost is a host that does not count, and what is known of it.
type DetachedHost struct {
	Host    string   `json:"host"`
	Version string   `json:"version"`
	Life    Liveness `json:"life"`
	Arrived string   `json:"arrived"` // when it came to Version
	// Why it takes no part in the rollout; empty: it is no longer there.
	Why string `json:"why,omitempty"`
}

// examples is how many hosts of a version are named.
const examples = 3

// Uniqueness reports whether version is the only one that runs. Hosts that are down,
// or not in Consul's catalog, keep no version alive, nor do those in apart, which has why
// they take no part in the rollout: they are named apart.
func (s *State) Uniqueness(version string, apart map[string]string) Uniqueness {
	u := Uniqueness{Version: version, Others: []OtherVersion{}, Detached: []DetachedHost{}}
	for _, v := range s.RunningVersions() {
		hosts := s.HostsRunning(v)
		if v == version {
			u.Found = true
			continue
		}
		o := OtherVersion{Version: v, Examples: []string{}}
		for _, node := range hosts {
			h := s.Hosts[node]
			if why := apart[node]; why != "" || h.Condition.Detached() {
				u.Detached = append(u.Detached, DetachedHost{node, v, h.Condition.Liveness, h.Report.Since.Format(time.RFC3339), why})
				continue
			}
			o.Hosts++
			if o.Hosts <= examples {
				o.Examples = append(o.Examples, node)
			}
		}
		if o.Hosts > 0 {
			u.Others = append(u.Others, o)
		}
	}
	u.Single = u.Found && len(u.Others) == 0
	return u
}

// HostState is the state of a host in one category.
type HostState struct {
	Host     string    `json:"host"`
	Category string    `json:"category"`
	State    string    `json:"state"`
	Since    time.Time `json:"since,omitzero"`
	Version  string    `json:"version"` // that it is about
	Detail   string    `json:"detail"`
	LogURL   string    `json:"log_url"`
	Suspect  string    `json:"suspect"`
}

// HostStates returns the states of the hosts, in order of hosts and categories.
// unreadable says why the reports of others cannot be read.
func (s *State) HostStates() (all []HostState, unreadable []error) {
	all = []HostState{}
	for _, node := range slices.Sorted(maps.Keys(s.Hosts)) {
		if err := s.DamagedReport(node); err != nil {
			unreadable = append(unreadable, err)
		}
		states := s.Hosts[node].Report.States
		for _, category := range slices.Sorted(maps.Keys(states)) {
			c := states[category]
			all = append(all, HostState{node, category, c.State, c.Since, c.Version, c.Detail, c.LogURL, c.Suspect})
		}
	}
	return all, unreadable
}

// StateOfPuppet is the state that a detailed exit code of Puppet means: 0
// nothing to do, 2 changes made; all others are failures.
func StateOfPuppet(code int) CategoryState {
	switch code {
	case 0, 2:
		return CategoryState{State: StateSuccess}
	default:
		return CategoryState{State: StateFailed, Detail: fmt.Sprintf("exit code %d", code)}
	}
}

// StateOfExit is the state that an exit code of any other program means.
func StateOfExit(code int) CategoryState {
	if code == 0 {
		return CategoryState{State: StateSuccess}
	}
	return CategoryState{State: StateFailed, Detail: fmt.Sprintf("exit code %d", code)}
}

// ErrUnknownType: scripts report no such category.
var ErrUnknownType = errors.New("unknown type")

// ParseResult reads how host scripts report: a type, which is the category, and
// as its result a state or an exit code. The codes of puppet, puppet_service and
// config are Puppet's. It returns ErrUnknownType for types other than these,
// validation, validation_service and provisioned, and ErrBadState for a result
// that is neither a state nor an exit code.
func ParseResult(kind, result string) (CategoryState, error) {
	ofExit := StateOfExit
	switch kind {
	case "puppet", "puppet_service", CategoryConfig:
		ofExit = StateOfPuppet
	case CategoryValidation, "validation_service", CategoryProvisioned:
	default:
		return CategoryState{}, fmt.Errorf("%w %q: use puppet, puppet_service, %s, %s, validation_service or %s", ErrUnknownType, kind, CategoryConfig, CategoryValidation, CategoryProvisioned)
	}
	if slices.Contains(States(), result) {
		return CategoryState{State: result}, nil
	}
	code, err := strconv.Atoi(result)
	if err != nil {
		return CategoryState{}, fmt.Errorf("result %q of %s: %w: it can be an exit code, %s", result, kind, ErrBadState, strings.Join(States(), ", "))
	}
	return ofExit(code), nil
}

// Sentinels of version files.
var (
	// ErrNoVersion: the version file does not exist or is empty.
	ErrNoVersion = errors.New("no version yet")
	// ErrVersionFile: the version file holds something else than a version.
	ErrVersionFile = errors.New("not a version file")
)

// PendingChange says whether a host has an update to make. Its numbers are those
// that scripts know.
type PendingChange int

// Pendencies.
const (
	UpdatePending    PendingChange = 0
	UpToDate         PendingChange = 1
	PendingUnknown   PendingChange = 2 // it is not known
	NoDesiredVersion PendingChange = 3 // no version was triggered, or this host has none and Consul is unreachable
)

// PendingChangeOf compares the desired version, as Desired returned it, with that of
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

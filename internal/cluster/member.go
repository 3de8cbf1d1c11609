package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
)

// Roles with a meaning. Leader and worker are derived.
const (
	RoleManager = "manager" // coordinates and is not part of the work
	RoleLeader  = "leader"
	RoleWorker  = "worker" // neither leader nor manager
)

// Record is what a member says of itself; it is kept at host/<node>/member.
type Record struct {
	Roles    []string       `json:"roles,omitempty"`
	Zone     string         `json:"zone,omitempty"`
	Params   profile.Params `json:"params,omitempty"`
	Meta     profile.Params `json:"meta,omitempty"`
	Provides []string       `json:"provides,omitempty"` // services
	Requires []Requirement  `json:"requires,omitempty"`
	// Workflows are the names of the workflows that the host defines, sorted; Static are
	// the names in its static block. The host's agent writes them. nil: unknown, as of a
	// host without an agent or with an older one; empty: the host has none.
	Workflows []string `json:"workflows,omitzero"`
	Static    []string `json:"static,omitzero"`
	// Disturbing are the Workflows of which a run takes the host out of service, sorted.
	Disturbing []string `json:"disturbing,omitempty"`
	// Orchestrates: the host's agent is a candidate for orchestrating this cluster.
	Orchestrates bool `json:"orchestrates,omitempty"`
	// Declared are the params and meta that came from the member's own files;
	// the others were set from elsewhere and are left alone by the files.
	Declared *Declared `json:"declared,omitempty"`
	// Keeper is the agent that keeps the record; empty: none does.
	Keeper string `json:"keeper,omitempty"`
}

// Requirement is what a member's static configuration waits for.
type Requirement struct {
	Target string `json:"target"` // [TAG.]SERVICE[@DC]
	Count  int    `json:"count,omitempty"`
	For    string `json:"for,omitempty"` // addressable, functional (default), reachable
}

// Service returns the service of the target; a full DNS name ends with a dot and is its own.
func (r Requirement) Service() string {
	if strings.HasSuffix(r.Target, ".") {
		return r.Target
	}
	target, _, _ := strings.Cut(r.Target, "=")
	target, _, _ = strings.Cut(target, "@")
	return target[strings.LastIndexByte(target, '.')+1:]
}

// Declared are names of params and meta, sorted.
type Declared struct {
	Params []string `json:"params,omitempty"`
	Meta   []string `json:"meta,omitempty"`
}

// Validate returns ErrInvalid for a record that cannot be stored.
func (r Record) Validate() error {
	for _, role := range r.Roles {
		if err := checkRole(role); err != nil {
			return err
		}
	}
	if err := r.Bounded(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// Equal reports whether both are stored alike.
func (r Record) Equal(o Record) bool { return text.SameJSON(r, o) }

// LacksWorkflow reports whether a host is known not to define a workflow; defined are the
// Workflows of its record.
func LacksWorkflow(defined []string, workflow string) bool {
	return defined != nil && !slices.Contains(defined, workflow)
}

// ReportedWorkflows returns names as a record holds them: sorted, each once. It returns
// nil, that is, unknown, if they are beyond the bounds of a record: a list that is cut
// off would say that workflows are missing.
func ReportedWorkflows(names []string) []string {
	reported := slices.Compact(slices.Sorted(slices.Values(names)))
	if boundedWorkflows(reported) != nil {
		return nil
	}
	return append([]string{}, reported...)
}

// KeptDiffers reports whether next differs from r in what the agent that keeps r
// takes from its own files; false if no agent does.
func (r Record) KeptDiffers(next Record) bool {
	return r.Keeper != "" && (!slices.Equal(r.Roles, next.Roles) || r.Zone != next.Zone ||
		!slices.Equal(r.Provides, next.Provides) || !slices.Equal(r.Requires, next.Requires) ||
		slices.ContainsFunc(r.declared().Params, func(key string) bool { return !r.Params[key].Equal(next.Params[key]) }))
}

func (r Record) declared() Declared {
	if r.Declared == nil {
		return Declared{}
	}
	return *r.Declared
}

// roleParam is the param by which a role shows: true for members that have it.
func roleParam(role string) string { return "cluster/" + role }

// derive returns a member's own params with one for each of its roles. Only the key
// current/leaders determines who leads and manages: a param that says otherwise
// does not count.
func derive(own profile.Params, roles []string) profile.Params {
	all := make(profile.Params, len(own)+len(roles))
	maps.Copy(all, own)
	for _, key := range underived(roles) {
		delete(all, key)
	}
	for _, role := range roles {
		all[roleParam(role)] = profile.Bool(true)
	}
	return all
}

// underived returns the params of the derived roles that are not among roles.
func underived(roles []string) (keys []string) {
	for _, role := range []string{RoleManager, RoleLeader, RoleWorker} {
		if !slices.Contains(roles, role) {
			keys = append(keys, roleParam(role))
		}
	}
	return keys
}

// checkRole returns ErrInvalid for what no member can give itself as a role.
func checkRole(role string) error {
	if err := text.CheckName(role); err != nil {
		return fmt.Errorf("role %w", err)
	}
	switch {
	case role == RoleLeader, role == RoleWorker:
		return fmt.Errorf("role %q is derived: %w: 'jorc cluster leader' says who leads", role, ErrInvalid)
	case slices.Contains([]string{profile.SelfKey, ParamFilter, ParamEligible}, roleParam(role)):
		return fmt.Errorf("role %q would show as the param %q, which means something else: %w: choose another name", role, roleParam(role), ErrInvalid)
	}
	return nil
}

// Declare returns have as files want it: roles, zone, provides, requires and workflows
// are theirs; of params and meta the ones that the files name, and no longer the ones that
// they named before. Others were set by jobs or people, and stay.
func (r Record) Declare(files Record) Record {
	next := r
	next.Roles, next.Zone, next.Provides, next.Requires = files.Roles, files.Zone, files.Provides, files.Requires
	next.Workflows, next.Static, next.Disturbing, next.Orchestrates = files.Workflows, files.Static, files.Disturbing, files.Orchestrates
	next.Params = overlay(r.Params, r.declared().Params, files.Params)
	next.Meta = overlay(r.Meta, r.declared().Meta, files.Meta)
	next.Declared = nil
	if d := (Declared{Params: keys(files.Params), Meta: keys(files.Meta)}); len(d.Params)+len(d.Meta) > 0 {
		next.Declared = &d
	}
	return next
}

func overlay(have profile.Params, before []string, files profile.Params) profile.Params {
	next := make(profile.Params, len(have)+len(files))
	maps.Copy(next, have)
	for _, key := range before {
		delete(next, key)
	}
	maps.Copy(next, files)
	return next
}

func keys(p profile.Params) []string { return slices.Sorted(maps.Keys(p)) }

// View is what one member's params come from, read at one moment.
type View struct {
	Profile profile.Document
	Node    string
	Record  Record
	Member  bool // the node is a member
	Leaders Leaders
}

// Roles returns the member's roles, derived ones last; a node that is not a member
// has none.
func (v View) Roles() []string {
	if !v.Member {
		return nil
	}
	return v.Leaders.rolesOf(v.Node, v.Record.Roles)
}

// Effective returns the effective params of the member, among them one for each
// of its roles, as Member.Params has them; compose merges objects. cluster/leader
// and cluster/manager are false for a member without that role.
func (v View) Effective(compose bool) profile.Effective {
	layers := v.Profile.Effective
	if compose {
		layers = v.Profile.Compose
	}
	roles := v.Roles()
	effective := layers(roles, derive(v.Record.Params, roles))
	for _, key := range underived(roles) {
		delete(effective, key)
	}
	for _, role := range []string{RoleLeader, RoleManager} {
		if !slices.Contains(roles, role) {
			effective[roleParam(role)] = profile.Resolved{Value: profile.Bool(false), Sources: []profile.Source{{Layer: profile.FromDefault}}}
		}
	}
	return effective
}

// MaxLeaders bounds how many members can lead one cluster.
const MaxLeaders = 100

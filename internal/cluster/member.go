package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
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

// Join makes node a member with the record that change returns, asked with
// what there is (the zero Record for a new member), and fills a vacancy among
// the leaders. It writes nothing when nothing changes, and reports whether it
// did. It returns change's error, ErrInvalid, or what kv.Doc.Update returns.
func (c *Cluster) Join(ctx context.Context, node string, change func(Record) (Record, error)) (changed bool, err error) {
	if changed, err = c.join(ctx, node, change); err != nil {
		return false, err
	}
	return changed, c.fillVacancies(ctx)
}

// join is Join without leaders.
func (c *Cluster) join(ctx context.Context, node string, change func(Record) (Record, error)) (changed bool, err error) {
	if err := CheckNode(node); err != nil {
		return false, err
	}
	_, changed, err = c.changeRecord(ctx, node, true, change)
	return changed, err
}

// changeRecord is Join without leaders; create says that a node which is no
// member becomes one, else it is ErrNoMember. Params that change are checked as
// those of the profile are.
func (c *Cluster) changeRecord(ctx context.Context, node string, create bool, change func(Record) (Record, error)) (Record, bool, error) {
	stored := sync.OnceValues(func() (profile.Document, error) {
		e, err := c.profile.Get(ctx)
		if errors.Is(err, kv.ErrDamaged) {
			err = nil // its schemas are lost, and joining is not
		}
		return e.Value, err
	})
	return c.changeRecordUnder(ctx, stored, node, create, change)
}

// changeRecordUnder is changeRecord with the schemas of the document that under
// returns.
func (c *Cluster) changeRecordUnder(ctx context.Context, under func() (profile.Document, error), node string, create bool,
	change func(Record) (Record, error),
) (Record, bool, error) {
	changed := false
	e, err := c.members.At(node).Update(ctx, func(old kv.Entry[Record]) (Record, bool, error) {
		if !old.Exists && !create {
			return Record{}, false, fmt.Errorf("node %q in cluster %q: %w: join it first", node, c.name, ErrNoMember)
		}
		next, err := change(old.Value)
		if err != nil {
			return Record{}, false, err
		}
		if err := next.validate(); err != nil {
			return Record{}, false, err
		}
		if len(next.Params) > 0 && !next.Params.Equal(old.Value.Params) {
			d, err := under()
			if err != nil {
				return Record{}, false, err
			}
			if next.Params, err = c.editor.CheckOwn(d, node, old.Value.Params, next.Params); err != nil {
				return Record{}, false, err
			}
		}
		changed = !old.Exists || !next.equal(old.Value)
		return next, changed, nil
	})
	return e.Value, changed && err == nil, err
}

// replaceDamaged writes r in place of a record that is damaged; it reports whether
// there was one.
func (c *Cluster) replaceDamaged(ctx context.Context, node string, r Record) (bool, error) {
	doc := c.members.At(node)
	old, err := doc.Get(ctx)
	if !errors.Is(err, kv.ErrDamaged) {
		return false, err
	}
	if err := r.validate(); err != nil {
		return false, err
	}
	p, err := c.profile.Get(ctx)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return false, err
	}
	if r.Params, err = c.editor.CheckOwn(p.Value, node, nil, r.Params); err != nil {
		return false, err
	}
	_, err = doc.CompareAndSwap(ctx, old, r)
	return err == nil, err
}

// Leave ends node's membership: its record goes, and it leads and manages no
// more. believes says that the node itself may not know that yet, so that its
// place among the leaders stays empty for a while. It reports whether the node
// was a member.
func (c *Cluster) Leave(ctx context.Context, node string, believes bool) (left bool, err error) {
	err = kv.RetryConflicts(ctx, func() (err error) {
		left, err = c.leave(ctx, node, believes)
		return err
	})
	if err != nil || !left {
		return false, err
	}
	return true, c.fillVacancies(ctx)
}

func (c *Cluster) leave(ctx context.Context, node string, believes bool) (bool, error) {
	member := c.members.At(node)
	r, err := c.store.Txn().Get(KeyLeaders).Get(member.Key()).Commit(ctx)
	if err != nil {
		return false, err
	}
	leaders, err := c.leaders.From(r)
	damaged := errors.Is(err, kv.ErrDamaged)
	if err != nil && !damaged {
		return false, err
	}
	record, err := member.From(r)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return false, err
	}
	next, changed := leaders.Value.without(node, believes)
	changed = changed && !damaged
	if !record.Exists && !changed {
		return false, nil
	}
	remove := func(t *kv.Txn) *kv.Txn {
		if record.Exists {
			t.CheckIndex(member.Key(), record.Index).Delete(member.Key())
		}
		return t
	}
	t := remove(c.store.Txn())
	if changed {
		c.leaders.SwapIn(t, leaders, next)
	}
	_, err = t.Commit(ctx)
	if changed && record.Exists && errors.Is(err, consul.ErrDenied) {
		_, err = remove(c.store.Txn()).Commit(ctx) // electors retire who is not a member
	}
	return err == nil, err
}

// SetMemberParam sets a param of a member's own if ref holds and the profile's
// schema takes it. It returns ErrNoMember for a node that is not a member.
func (c *Cluster) SetMemberParam(ctx context.Context, node, key string, v profile.Value, ref profile.Ref) error {
	d, err := c.profile.Get(ctx)
	if err != nil {
		return err
	}
	_, _, err = c.changeRecord(ctx, node, false, func(r Record) (_ Record, err error) {
		r.Params, err = c.editor.SetOwn(d.Value, node, r.Params, key, v, ref)
		return r, err
	})
	return err
}

// RemoveMemberParam removes a param of a member's own if ref holds.
func (c *Cluster) RemoveMemberParam(ctx context.Context, node, key string, ref profile.Ref) error {
	var d profile.Document // for the schema, which a reference alone needs
	if ref.Value != nil {
		e, err := c.profile.Get(ctx)
		if err != nil {
			return err
		}
		d = e.Value
	}
	_, _, err := c.changeRecord(ctx, node, false, func(r Record) (_ Record, err error) {
		r.Params, err = c.editor.RemoveOwn(d, r.Params, key, ref)
		return r, err
	})
	return err
}

// SetMemberMeta sets a member's meta; nil removes the key.
func (c *Cluster) SetMemberMeta(ctx context.Context, node, key string, v *profile.Value) error {
	_, _, err := c.changeRecord(ctx, node, false, func(r Record) (_ Record, err error) {
		if v == nil {
			r.Meta, err = r.Meta.Remove(key, profile.Ref{})
			return r, err
		}
		if err := profile.CheckMeta(key, *v); err != nil {
			return r, err
		}
		r.Meta, err = r.Meta.Set(key, *v, profile.Ref{})
		return r, err
	})
	return err
}

// Record reads what node says of itself. It returns ErrNoMember.
func (c *Cluster) Record(ctx context.Context, node string) (Record, error) {
	e, err := c.members.At(node).Get(ctx)
	if err == nil && !e.Exists {
		err = fmt.Errorf("node %q in cluster %q: %w", node, c.name, ErrNoMember)
	}
	return e.Value, err
}

func (r Record) validate() error {
	for _, role := range r.Roles {
		if err := checkRole(role); err != nil {
			return err
		}
	}
	if err := r.bounded(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// equal reports whether both are stored alike.
func (r Record) equal(o Record) bool { return text.SameJSON(r, o) }

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

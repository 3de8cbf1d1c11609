package cluster

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jorc/jorc/internal/kv"
)

// Control is what holds a cluster still.
type Control struct {
	Paused      *Hold           `json:"paused,omitempty"`
	ObserveOnly *Hold           `json:"observe_only,omitempty"`
	Hold        *Hold           `json:"hold,omitempty"`  // of the whole cluster
	Roles       map[string]Hold `json:"roles,omitempty"` // by role
	Nodes       map[string]Hold `json:"nodes,omitempty"` // by node
}

// Hold says since when, why and by whom. Off lifts, for one role or node, what
// is held more generally.
type Hold struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	Off    bool      `json:"off,omitempty"`
}

// Scope is what a hold is of: a node, a role, or, when both are empty, the
// cluster.
type Scope struct {
	Role string
	Node string
}

func (s Scope) String() string {
	switch {
	case s.Node != "":
		return fmt.Sprintf("node %q", s.Node)
	case s.Role != "":
		return fmt.Sprintf("role %q", s.Role)
	}
	return "the cluster"
}

// Held tells whether convergence is held on node with roles: what is said of
// the node counts before what is said of a role, in the order of roles, and that
// before what is said of the cluster.
func (c Control) Held(node string, roles []string) (Hold, bool) {
	if h, ok := c.Nodes[node]; ok {
		return h, !h.Off
	}
	for _, r := range roles {
		if h, ok := c.Roles[r]; ok {
			return h, !h.Off
		}
	}
	if c.Hold != nil {
		return *c.Hold, !c.Hold.Off
	}
	return Hold{}, false
}

// Control reads what holds the cluster.
func (c *Cluster) Control(ctx context.Context) (Control, error) {
	e, err := c.control.Get(ctx)
	return e.Value, err
}

// WatchControl calls handle with what holds the cluster, and whenever that
// changes, until ctx ends.
func (c *Cluster) WatchControl(ctx context.Context, handle func(kv.Update[Control])) error {
	return c.control.Watch(ctx, handle)
}

// Pause pauses the cluster: nothing new starts. It changes nothing, not even
// the reason, when it is paused already, and tells whether it did.
func (c *Cluster) Pause(ctx context.Context, h Hold) (changed bool, err error) {
	return c.changeControl(ctx, func(v *Control) bool { return begin(&v.Paused, h) })
}

// Resume ends a pause.
func (c *Cluster) Resume(ctx context.Context) (changed bool, err error) {
	return c.changeControl(ctx, func(v *Control) bool { return end(&v.Paused) })
}

// SetObserveOnly switches between deciding and only observing.
func (c *Cluster) SetObserveOnly(ctx context.Context, on bool, h Hold) (changed bool, err error) {
	return c.changeControl(ctx, func(v *Control) bool {
		if on {
			return begin(&v.ObserveOnly, h)
		}
		return end(&v.ObserveOnly)
	})
}

// Hold stops convergence in a scope.
func (c *Cluster) Hold(ctx context.Context, s Scope, h Hold) (changed bool, err error) {
	return c.changeControl(ctx, func(v *Control) bool { return v.hold(s, h) })
}

// Unhold lets convergence go on in a scope. Where the scope is held because
// something more general is, it becomes an exception from that.
func (c *Cluster) Unhold(ctx context.Context, s Scope, h Hold) (changed bool, err error) {
	return c.changeControl(ctx, func(v *Control) bool { return v.unhold(s, h) })
}

// ForgetHold drops what was said about holding node, a hold or an exception
// from one: the node does not come back. changed is false when nothing was.
func (c *Cluster) ForgetHold(ctx context.Context, node string) (changed bool, err error) {
	return c.changeControl(ctx, func(v *Control) bool {
		_, there := v.Nodes[node]
		delete(v.Nodes, node)
		return there
	})
}

func (v *Control) hold(s Scope, h Hold) bool {
	var scoped *map[string]Hold
	name := s.Node
	switch {
	case s.Node != "":
		scoped = &v.Nodes
	case s.Role != "":
		scoped, name = &v.Roles, s.Role
	default:
		return begin(&v.Hold, h)
	}
	if old, ok := (*scoped)[name]; ok && old.Off == h.Off {
		return false
	}
	if *scoped == nil {
		*scoped = map[string]Hold{}
	}
	(*scoped)[name] = h
	return true
}

func (v *Control) unhold(s Scope, h Hold) bool {
	general := v.Hold != nil || s.Node != "" && len(v.Roles) > 0
	switch {
	case s == (Scope{}):
		ended := end(&v.Hold)
		return v.prune() || ended
	case general:
		h.Off = true
		return v.hold(s, h)
	case s.Node != "":
		_, ok := v.Nodes[s.Node]
		delete(v.Nodes, s.Node)
		return ok
	}
	_, ok := v.Roles[s.Role]
	delete(v.Roles, s.Role)
	return v.prune() || ok
}

// prune drops the exceptions from holds that are no more.
func (v *Control) prune() bool {
	off := func(_ string, h Hold) bool { return h.Off }
	before := len(v.Roles) + len(v.Nodes)
	maps.DeleteFunc(v.Roles, off)
	if len(v.Roles) == 0 {
		maps.DeleteFunc(v.Nodes, off)
	}
	return len(v.Roles)+len(v.Nodes) < before
}

func begin(p **Hold, h Hold) bool {
	if *p != nil {
		return false
	}
	*p = &h
	return true
}

func end(p **Hold) bool {
	was := *p != nil
	*p = nil
	return was
}

// changeControl writes what change made of the document when it says that it
// changed something.
func (c *Cluster) changeControl(ctx context.Context, change func(*Control) bool) (changed bool, err error) {
	_, err = c.control.Update(ctx, func(old kv.Entry[Control]) (Control, bool, error) {
		v := old.Value.clone()
		changed = change(&v)
		return v, changed, nil
	})
	return changed && err == nil, err
}

// clone returns a Control whose maps can be changed: an Entry's value may be
// seen by others.
func (v Control) clone() Control {
	copied := func(m map[string]Hold) map[string]Hold {
		out := make(map[string]Hold, len(m))
		for k, h := range m {
			out[k] = h
		}
		return out
	}
	v.Roles, v.Nodes = copied(v.Roles), copied(v.Nodes)
	return v
}

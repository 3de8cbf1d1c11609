package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

// CheckState is one health check of a node.
type CheckState struct {
	Service   string `json:"service"` // empty: a check of the node itself
	ServiceID string `json:"service_id"`
	CheckID   string `json:"check_id"`
	Check     string `json:"check"` // its name
	State     string `json:"state"` // passing, warning, critical or maintenance
	Output    string `json:"output"`
}

// Summary is the first line of the check's output.
func (c CheckState) Summary() string { return firstLine(c.Output) }

// NodeHealth is the health of a node and its services.
type NodeHealth struct {
	Node    string       `json:"node"`
	Healthy bool         `json:"healthy"` // no check is critical or in maintenance
	Total   int          `json:"total"`   // number of checks
	Checks  []CheckState `json:"checks"`  // the failing ones, the worst first
	// Hidden: the token may not read all checks.
	Hidden bool `json:"hidden"`
}

// HealthOptions select the node and the checks to list.
type HealthOptions struct {
	Node      string // default: the local agent's
	Warnings  bool   // list checks in state warning, too
	Anonymous bool   // the client has no token
	Timeout   time.Duration
}

// Health reads the checks of a node and lists the failing ones. The error is
// consul.ErrNotFound if the node does not exist.
func Health(ctx context.Context, client *consul.Client, o HealthOptions) (NodeHealth, error) {
	node, err := nodeName(ctx, client, o)
	if err != nil {
		return NodeHealth{}, err
	}
	var filtered bool
	checks, err := bounded(ctx, o.Timeout, func(ctx context.Context) (consul.HealthChecks, error) {
		checks, meta, err := client.HealthNode(ctx, node, consul.Query{})
		filtered = meta.Filtered
		return checks, err
	})
	if err != nil {
		return NodeHealth{}, err
	}
	h := summarize(node, checks, o.Warnings)
	h.Hidden = filtered
	if h.Hidden || !h.Healthy {
		return h, nil
	}
	if o.Anonymous {
		h.Hidden, err = hidden(ctx, client, node, o.Timeout)
	}
	if err == nil && !h.Hidden && h.Total == 0 {
		err = fmt.Errorf("node %q: %w in the catalog; name this host with --node as Consul does", node, consul.ErrNotFound)
	}
	return h, err
}

// summarize returns the health that follows from checks.
func summarize(node string, checks consul.HealthChecks, warnings bool) NodeHealth {
	h := NodeHealth{Node: node, Healthy: true, Total: len(checks), Checks: []CheckState{}}
	for _, c := range checks {
		s := CheckState{
			Service: c.ServiceName, ServiceID: c.ServiceID, CheckID: c.CheckID,
			Check: c.Name, State: c.Status, Output: c.Output,
		}
		if consul.IsMaintenance(c.CheckID) {
			s.State, s.Output = consul.HealthMaint, c.Notes
		}
		bad := s.State != consul.HealthPassing && s.State != consul.HealthWarning
		if bad {
			h.Healthy = false
		}
		if bad || warnings && s.State == consul.HealthWarning {
			h.Checks = append(h.Checks, s)
		}
	}
	slices.SortFunc(h.Checks, func(a, b CheckState) int {
		return cmp.Or(severity(a.State)-severity(b.State), cmp.Compare(a.Service, b.Service),
			cmp.Compare(a.ServiceID, b.ServiceID), cmp.Compare(a.CheckID, b.CheckID))
	})
	return h
}

func severity(state string) int {
	switch state {
	case consul.HealthMaint:
		return 1
	case consul.HealthWarning:
		return 2
	default:
		return 0
	}
}

// nodeName returns o.Node or, by default, the local agent's node name.
func nodeName(ctx context.Context, client *consul.Client, o HealthOptions) (string, error) {
	if o.Node != "" {
		return o.Node, nil
	}
	self, err := bounded(ctx, o.Timeout, client.AgentSelf)
	if errors.Is(err, consul.ErrDenied) && !unknownToken(err) {
		return "", fmt.Errorf("%w; give the token agent:read, or name this host with --node (JORC_NODE)", err)
	}
	return self.Config.NodeName, err
}

// hidden reports whether a request without a token may miss checks of the node:
// Consul then omits them without an error.
func hidden(ctx context.Context, client *consul.Client, node string, timeout time.Duration) (bool, error) {
	allowed, err := bounded(ctx, timeout, func(ctx context.Context) ([]bool, error) {
		return client.Authorize(ctx, consul.Right{Resource: "node", Access: "read", Segment: node},
			consul.Right{Resource: "service", Access: "read"})
	})
	if err != nil {
		return false, err
	}
	return slices.Contains(allowed, false), nil
}

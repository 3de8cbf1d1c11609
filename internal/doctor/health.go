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

// Pong is the answer of an agent about itself.
type Pong struct {
	Address     string  `json:"address"`
	Node        string  `json:"node"`       // empty, as the next two, without agent:read
	Datacenter  string  `json:"datacenter"` //
	Version     string  `json:"version"`    // of Consul
	Leader      string  `json:"leader"`     // address of the Raft leader; empty: no leader
	RoundTripMS float64 `json:"round_trip_ms"`
}

// Ping queries the agent at address, to which client connects, and its servers. It
// needs no rights; without agent:read the answer has fewer fields. The error is
// consul.ErrUnreachable if the agent did not answer or no leader is known (then Pong
// holds the fields known so far), and consul.ErrDenied if the token is unknown.
func Ping(ctx context.Context, client *consul.Client, address string, timeout time.Duration) (Pong, error) {
	p := Pong{Address: address}
	self, err := bounded(ctx, timeout, client.AgentSelf)
	switch {
	case err == nil:
		p.Node, p.Datacenter, p.Version = self.Config.NodeName, self.Config.Datacenter, self.Config.Version
	case ctx.Err() != nil:
		return p, context.Cause(ctx)
	case errors.Is(err, consul.ErrDenied) && !unknownToken(err): // fewer fields
	case errors.Is(err, consul.ErrRefused): // TLS to a plain port or plain HTTP to a TLS port
		return p, fmt.Errorf("%w; %s", err, remedyFor(err))
	default:
		return p, Explain(address, err)
	}
	started := time.Now()
	p.Leader, err = bounded(ctx, timeout, client.Leader)
	p.RoundTripMS = float64(time.Since(started).Microseconds()) / 1000
	switch {
	case err == nil && p.Leader != "":
		return p, nil
	case err == nil:
		err = errNoLeader
	case ctx.Err() != nil:
		return p, context.Cause(ctx)
	}
	return p, fmt.Errorf("the Consul agent at %s answers, but knows no leader: %s; %s: %w", address, why(err), remedyFor(err), consul.ErrUnreachable)
}

// errNoLeader has the text of Consul's error.
var errNoLeader = errors.New("No cluster leader")

package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

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

package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

// Pong is what an agent that answers says of itself.
type Pong struct {
	Address     string  `json:"address"`
	Node        string  `json:"node"`       // empty, as the next two, without the right to ask
	Datacenter  string  `json:"datacenter"` //
	Version     string  `json:"version"`    // of Consul
	Leader      string  `json:"leader"`     // address of the Raft leader; empty: there is none
	RoundTripMS float64 `json:"round_trip_ms"`
}

// Ping asks the agent at address, which client talks to, and the servers
// behind it. It needs no rights; without agent:read the answer says less. The
// error is consul.ErrUnreachable when the agent did not answer or no leader is
// known (then Pong holds what was learnt), consul.ErrDenied when the token is
// not known.
func Ping(ctx context.Context, client *consul.Client, address string, timeout time.Duration) (Pong, error) {
	p := Pong{Address: address}
	self, err := bounded(ctx, timeout, client.AgentSelf)
	switch {
	case err == nil:
		p.Node, p.Datacenter, p.Version = self.Config.NodeName, self.Config.Datacenter, self.Config.Version
	case ctx.Err() != nil:
		return p, context.Cause(ctx)
	case errors.Is(err, consul.ErrDenied) && !unknownToken(err): // less detail
	case errors.Is(err, consul.ErrRefused): // TLS spoken to a port without, or the other way round
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

// errNoLeader is worded as Consul words it.
var errNoLeader = errors.New("No cluster leader")

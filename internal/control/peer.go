package control

import (
	"context"
	"net"
)

// peer is a process that asks, as the kernel knows it; -1: it does not.
type peer struct{ uid, pid int }

type peerKey struct{}

// withPeer implements http.Server.ConnContext.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, credentials(c))
}

func peerOf(ctx context.Context) peer {
	if p, ok := ctx.Value(peerKey{}).(peer); ok {
		return p
	}
	return peer{-1, -1}
}

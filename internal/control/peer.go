package control

import (
	"context"
	"net"
	"os/user"
	"strconv"
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

// GroupID returns the number of a group that is named, or numbered.
func GroupID(group string) (int, error) {
	g, err := user.LookupGroup(group)
	if err == nil {
		group = g.Gid
	}
	gid, numberErr := strconv.ParseUint(group, 10, 31)
	if numberErr != nil {
		return 0, err
	}
	return int(gid), nil
}

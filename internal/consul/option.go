package consul

import (
	"context"
	"net"
)

// DialFunc opens a connection to address.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Option changes how a Client is made.
type Option func(DialFunc) DialFunc

// Dialing makes a client open its connections with what wrap makes of the usual
// way to do so: from another address of this host, say.
func Dialing(wrap func(usual DialFunc) DialFunc) Option { return wrap }

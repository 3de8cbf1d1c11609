//go:build !linux

package control

import (
	"context"
	"errors"
	"net"
)

var errLinux = errors.New("agents run on Linux only")

type socket struct{ net.Listener }

func listen(context.Context, string) (*socket, error) { return nil, errLinux }

func (s *socket) admit(string) error { return errLinux }

func (s *socket) close() error { return errLinux }

func dial(context.Context, string) (net.Conn, error) { return nil, errLinux }

func credentials(net.Conn) peer { return peer{-1, -1} }

package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

// ports are the ports of a Consul server. A kept directory stores them, so that
// commands copied from an earlier announcement continue to work.
type ports struct {
	HTTP   int `json:"http"`
	DNS    int `json:"dns"`
	Serf   int `json:"serf_lan"`
	Server int `json:"server"`
}

const loopback = "127.0.0.1"

func (p ports) httpAddr() string { return address(p.HTTP) }
func (p ports) dnsAddr() string  { return address(p.DNS) }

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// freePorts returns ports that are free for TCP and UDP, preferably those of before.
// Another process can take them before Consul does.
func freePorts(ctx context.Context, before ports) (found ports, err error) {
	var taken []io.Closer
	defer func() {
		for _, t := range taken {
			err = errors.Join(err, t.Close())
		}
	}()
	wanted := []int{before.HTTP, before.DNS, before.Serf, before.Server}
	for i := range wanted {
		held, err := hold(ctx, &wanted[i])
		if err != nil && wanted[i] != 0 {
			wanted[i] = 0
			held, err = hold(ctx, &wanted[i])
		}
		if err != nil {
			return ports{}, fmt.Errorf("no free port on %s: %w", loopback, err)
		}
		taken = append(taken, held...)
	}
	return ports{wanted[0], wanted[1], wanted[2], wanted[3]}, nil
}

// hold binds a port for TCP and UDP; 0: any free one.
func hold(ctx context.Context, port *int) ([]io.Closer, error) {
	var lc net.ListenConfig
	var last error
	for range 20 {
		tcp, err := lc.Listen(ctx, "tcp", address(*port))
		if err != nil {
			return nil, err
		}
		number := tcp.Addr().(*net.TCPAddr).Port
		udp, err := lc.ListenPacket(ctx, "udp", address(number))
		if err == nil {
			*port = number
			return []io.Closer{tcp, udp}, nil
		}
		last = errors.Join(err, tcp.Close())
		if *port != 0 {
			break
		}
	}
	return nil, last
}

// load reads the ports of an earlier run, if there was one.
func (p *ports) load(file string) error {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, p); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func (p *ports) save(file string) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

const (
	startTries  = 10               // attempts, because another process may take a port
	startWithin = time.Minute      // until a leader is elected
	stopWithin  = 10 * time.Second // for a kept server to save its state
	nodeName    = "dev"
	nodeID      = "6a6f7263-0000-4000-8000-00000000dead" // fixed: the cluster has one server
)

// errPortTaken: another process bound the port first.
var errPortTaken = errors.New("a port was taken meanwhile")

// server is the Consul server of the session.
type server struct {
	ports ports
	kept  bool
	log   string // file
	cmd   *exec.Cmd
	done  chan struct{} // closed when the process has ended
}

// startConsul starts program on free ports and waits until it leads. Only a kept
// server saves its data, in dir.
func startConsul(ctx context.Context, program, dir string, kept bool) (*server, error) {
	file := filepath.Join(dir, "ports.json")
	var before ports
	if err := before.load(file); err != nil {
		return nil, err
	}
	for range startTries {
		found, err := freePorts(ctx, before)
		if err != nil {
			return nil, err
		}
		s := &server{ports: found, kept: kept, log: filepath.Join(dir, "consul.log")}
		if err := s.configure(dir, before.Server); err != nil {
			return nil, err
		}
		if err := s.start(program, dir); err != nil {
			return nil, fmt.Errorf("start Consul: %w", err)
		}
		switch err := s.await(ctx); {
		case err == nil:
			return s, found.save(file)
		case errors.Is(err, errPortTaken):
			s.end()
		default:
			s.end()
			return nil, err
		}
	}
	return nil, fmt.Errorf("Consul did not start within %d tries: %w", startTries, errPortTaken)
}

// configure writes Consul's configuration. A server with data has its former port
// in its Raft configuration, so a new port has to be written there.
func (s *server) configure(dir string, formerPort int) error {
	conf := map[string]any{
		"node_name": nodeName, "node_id": nodeID, "datacenter": "dc1", "log_level": "warn", "server": true,
		"bind_addr": loopback, "client_addr": loopback, "advertise_addr": loopback,
		"ui_config":           map[string]any{"enabled": true},
		"disable_coordinates": true, "disable_update_check": true, "leave_on_terminate": false,
		"ports": map[string]any{
			"http": s.ports.HTTP, "dns": s.ports.DNS, "serf_lan": s.ports.Serf, "server": s.ports.Server,
			"https": -1, "grpc": -1, "grpc_tls": -1, "serf_wan": -1,
		},
		"performance": map[string]any{"raft_multiplier": 1},
	}
	if s.kept {
		data := filepath.Join(dir, "consul")
		conf["data_dir"], conf["bootstrap_expect"] = data, 1
		raft := filepath.Join(data, "raft")
		if _, err := os.Stat(raft); err == nil && formerPort != s.ports.Server {
			if err := writeJSON(filepath.Join(raft, "peers.json"), []any{map[string]any{
				"id": nodeID, "address": address(s.ports.Server), "non_voter": false,
			}}); err != nil {
				return err
			}
		}
	}
	return writeJSON(filepath.Join(dir, "consul.json"), conf)
}

func writeJSON(file string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

// start starts the process, in a group of its own: Ctrl-C is jorc's to handle.
func (s *server) start(program, dir string) error {
	log, err := os.Create(s.log)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = exec.Command(program, "agent", "-config-file="+filepath.Join(dir, "consul.json"))
	if !s.kept {
		s.cmd.Args = append(s.cmd.Args, "-dev")
	}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	s.cmd.SysProcAttr = command.Attached()
	s.done = make(chan struct{})
	started := make(chan error)
	go func() {
		defer close(s.done)
		// Pdeathsig comes when the thread ends that started the process, so the
		// thread stays; Consul ends with jorc, even if jorc is killed.
		runtime.LockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // ProcessState has the result
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	if err := saveProcess(dir, s.cmd.Process.Pid); err != nil {
		s.end()
		return err
	}
	return nil
}

// await returns when the server leads, or why it does not.
func (s *server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	client, err := consul.New(config.Consul{Address: s.ports.httpAddr()})
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		node, _, err := client.CatalogNode(ctx, nodeName, consul.Query{Consistent: true})
		if err == nil && node != nil {
			return nil
		}
		select {
		case <-s.done:
			return s.ended()
		default:
		}
		if concurrency.Sleep(ctx, pollEvery) != nil {
			return fmt.Errorf("Consul has no leader: %w; %s", ctx.Err(), s.tail())
		}
	}
}

// watch returns an error when Consul ends before ctx does.
func (s *server) watch(ctx context.Context) error {
	select {
	case <-s.done:
		return s.ended()
	case <-ctx.Done():
		return nil
	}
}

func (s *server) ended() error {
	tail := s.tail()
	if strings.Contains(tail, "address already in use") {
		return fmt.Errorf("Consul (pid %d): %w", s.cmd.Process.Pid, errPortTaken)
	}
	return fmt.Errorf("Consul (pid %d) has ended: %s; %s", s.cmd.Process.Pid, s.cmd.ProcessState, tail)
}

// tail returns the last lines of Consul's log.
func (s *server) tail() string {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return "it has logged nothing"
	}
	lines := strings.Split(string(data), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return "its log ends with: " + strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// end stops the server and waits until it has exited. A kept server gets time to
// save its state.
func (s *server) end() {
	if s.kept {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		t := time.NewTimer(stopWithin)
		defer t.Stop()
		select {
		case <-s.done:
		case <-t.C:
		}
	}
	_ = s.cmd.Process.Kill()
	<-s.done
}

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

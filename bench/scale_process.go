package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// hostProcess is a process that runs agents, and the Consul agent that they ask. A process has
// few agents: when it executes a program, the kernel closes all connections of its agents in
// the new one.
type hostProcess struct {
	first, count int
	consul       *consul
	proc         *process
	calls        *rpc.Client
}

// launch starts the process.
func (h *hostProcess) launch(b *bench) error {
	dir, err := b.place("hosts")
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	requests, toHost, err := os.Pipe()
	if err != nil {
		return err
	}
	defer requests.Close()
	fromHost, answers, err := os.Pipe()
	if err != nil {
		return errors.Join(err, toHost.Close())
	}
	defer answers.Close()
	connection := descriptors{fromHost, toHost}
	if h.proc, err = startIn(ownProcesses(), dir, "hosts", []string{"nice", "-n", hostNice, program, hostFlag}, nil, requests, answers); err != nil {
		return errors.Join(err, connection.Close())
	}
	h.calls = rpc.NewClientWithCodec(jsonrpc.NewClientCodec(connection))
	return nil
}

// hostNice makes agents yield the processors to Consul and to the orchestrator, which have
// others in a fleet: there they need not wait until thousands of hosts have had a turn.
const hostNice = "10"

// ownProcesses are the namespaces of a host process: its agents, which look for what a task
// left behind in all processes of the host, do not see the thousands of the
// other host processes. Only root may make them.
func ownProcesses() uintptr {
	if os.Geteuid() != 0 {
		return 0
	}
	return syscall.CLONE_NEWPID | syscall.CLONE_NEWNS
}

// seeOwnProcesses makes /proc show the processes of this process's namespace, if it is the
// first one of it.
func seeOwnProcesses() error {
	if os.Getpid() != 1 {
		return nil
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts from others: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// startHostConsul starts the Consul agent of the host processes from the first node on.
func (b *bench) startHostConsul(ctx context.Context, server *consul, first int) (*consul, error) {
	return b.startClient(ctx, server, fmt.Sprintf("consul-%05d", first), map[string]any{
		"limits": map[string]any{"http_max_conns_per_client": peerLimit},
		// On a busy machine the server is late; that must not count as an outage.
		"performance": map[string]any{"rpc_hold_timeout": "30s"},
	})
}

// call makes a request and decodes its answer into out. The process ends if ctx ends first:
// nothing else interrupts a request.
func (h *hostProcess) call(ctx context.Context, method string, args, out any) error {
	call := h.calls.Go("Host."+method, args, out, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		if errors.Is(call.Error, rpc.ErrShutdown) || errors.Is(call.Error, io.ErrUnexpectedEOF) {
			<-h.proc.done // its answers ended
			return h.proc.died()
		}
		return call.Error
	case <-ctx.Done():
		h.proc.kill()
		return context.Cause(ctx)
	}
}

func (h *hostProcess) close() {
	if h.calls != nil {
		_ = h.calls.Close() // its process ends with it, or here
	}
	if h.proc != nil {
		h.proc.kill()
	}
}

// everywhere makes a request to all host processes at the same time and returns their
// answers.
func everywhere[T any](ctx context.Context, f *simulated, method string, args func(*hostProcess) any) ([]T, error) {
	all := make([]T, len(f.hosts))
	g, ctx := errgroup.WithContext(ctx)
	for i, h := range f.hosts {
		g.Go(func() error {
			if err := h.call(ctx, method, args(h), &all[i]); err != nil {
				return fmt.Errorf("agents %d to %d: %w", h.first, h.first+h.count-1, err)
			}
			return nil
		})
	}
	return all, g.Wait()
}

// same are arguments that all host processes get.
func same(args any) func(*hostProcess) any { return func(*hostProcess) any { return args } }

var noArguments = same(None{})

// watches returns the median number of an agent's open blocking queries: leaders have
// more than other agents.
func (f *simulated) watches(ctx context.Context) (int, error) {
	each, err := everywhere[HostCounts](ctx, f, "Counts", noArguments)
	if err != nil {
		return 0, err
	}
	var all []int
	for _, c := range each {
		all = append(all, c.Watches...)
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// asked is what all agents have asked of Consul so far.
func (f *simulated) asked(ctx context.Context) (sum tally, err error) {
	each, err := everywhere[HostCounts](ctx, f, "Counts", noArguments)
	for _, c := range each {
		sum = sum.plus(c.Asked)
	}
	return sum, err
}

// kinds are the requests of the agents since it was last called, where they are
// counted by kind.
func (f *simulated) kinds(ctx context.Context) (map[string]kindTally, error) {
	each, err := everywhere[map[string]kindTally](ctx, f, "Kinds", noArguments)
	sum := map[string]kindTally{}
	for _, all := range each {
		for name, t := range all {
			sum[name] = sum[name].plus(t)
		}
	}
	return sum, err
}

// outages is what maintenance mode was used for since it was last called.
func (f *simulated) outages(ctx context.Context) (sum Outages, err error) {
	each, err := everywhere[Outages](ctx, f, "Outages", noArguments)
	for _, o := range each {
		sum.Begins, sum.Lifts = append(sum.Begins, o.Begins...), append(sum.Lifts, o.Lifts...)
		sum.Writes += o.Writes
	}
	return sum, err
}

// memory is the resident set of all host processes, in MB.
func (f *simulated) memory(ctx context.Context) (sum float64, err error) {
	each, err := everywhere[float64](ctx, f, "Memory", noArguments)
	for _, rss := range each {
		sum += rss
	}
	return sum, err
}

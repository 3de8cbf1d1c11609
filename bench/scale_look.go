package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// scaleLook selects parts and additional output of the measurements of fleets.
type scaleLook struct {
	parts    string // what to measure; empty: all
	requests bool   // print requests by kind
	profiles string // directory for profiles; empty: none
	// task is how long a version keeps a node busy, without its processor; 0: not at all. Then a rollout waits for hosts,
	// and not for the processors that all of them share here.
	task time.Duration
}

// scaleParts are the values of -parts. Each includes the start of all agents and
// their first version.
var scaleParts = []string{"change", "idle", "rollout", "run", "stage", "storm", "dashboard", "stored"}

func (l scaleLook) check() error {
	if l.parts == "" {
		return nil
	}
	for part := range strings.SplitSeq(l.parts, ",") {
		if !slices.Contains(scaleParts, part) {
			return fmt.Errorf("-parts: %q is none of %s", part, strings.Join(scaleParts, ", "))
		}
	}
	return nil
}

// has reports whether a part is to be measured.
func (l scaleLook) has(part string) bool {
	return l.parts == "" || slices.Contains(strings.Split(l.parts, ","), part)
}

// consulProfiled is the duration of Consul's CPU profile.
const consulProfiled = 10 * time.Second

// profiled calls do and writes profiles of the host processes and of Consul to files
// whose names begin with name.
func (l scaleLook) profiled(ctx context.Context, f *simulated, name string, do func(context.Context) error) (err error) {
	if l.profiles == "" {
		return do(ctx)
	}
	dir, err := filepath.Abs(l.profiles)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := func(of string) string { return filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+"-"+of) }
	_, err = everywhere[None](ctx, f, "Profile", func(h *hostProcess) any { return path(fmt.Sprintf("agents-%05d", h.first)) })
	if err != nil {
		return err
	}
	g, meanwhile := errgroup.WithContext(ctx)
	for name, c := range map[string]*consul{"consul": f.consul, "client": f.clients[0]} {
		g.Go(func() error {
			return c.save(meanwhile, fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(consulProfiled.Seconds())), path(name+"-cpu"))
		})
	}
	if err := do(ctx); err != nil {
		return err
	}
	_, err = everywhere[None](ctx, f, "Profile", same(""))
	return errors.Join(err, g.Wait(), f.consul.save(ctx, "/v1/agent/metrics", path("consul-metrics.json")))
}

// beginProfile begins a CPU profile of this process in a file whose name begins with
// name.
func beginProfile(name string) (*os.File, error) {
	file, err := os.Create(name + "-cpu")
	if err != nil {
		return nil, err
	}
	runtime.SetBlockProfileRate(int(10 * time.Microsecond))
	runtime.SetMutexProfileFraction(10)
	return file, pprof.StartCPUProfile(file)
}

// endProfile ends the profile in file and writes the others.
func endProfile(name string, file *os.File) error {
	pprof.StopCPUProfile()
	runtime.SetBlockProfileRate(0)
	runtime.SetMutexProfileFraction(0)
	err := file.Close()
	for _, kind := range []string{"block", "mutex", "goroutine"} {
		err = errors.Join(err, writeProfile(kind, name+"-"+kind))
	}
	return err
}

func writeProfile(kind, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup(kind).WriteTo(f, 0), f.Close())
}

// save writes what Consul answers to a file.
func (c *consul) save(ctx context.Context, request, path string) error {
	body, err := c.raw(ctx, request)
	if err != nil {
		return err
	}
	return os.WriteFile(path, body, 0o644)
}

// counted returns the address of a proxy to Consul that counts requests by kind
// until closeAll is called, which breaks all connections.
func (c *consul) counted(ctx context.Context, k *kinds) (address string, closeAll func(), err error) {
	ip, err := freeIP()
	if err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", ip+":8500")
	if err != nil {
		return "", nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { listener.Close() })
	t := &traffic{kinds: k}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return // closed
			}
			running.Go(func() { relay(ctx, near, c.http, t) })
		}
	})
	return listener.Addr().String(), func() { stop(); running.Wait() }, nil
}

// relay copies bytes in both directions until one side or ctx ends.
func relay(ctx context.Context, near net.Conn, to string, t *traffic) {
	defer near.Close()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	far := &wire{Conn: conn, traffic: t}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { near.Close(); far.Close() })()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(struct{ io.Writer }{far}, struct{ io.Reader }{near}) // ends with either
		far.Close()
	}()
	_, _ = io.Copy(struct{ io.Writer }{near}, struct{ io.Reader }{far})
	near.Close()
	<-done
}

package dev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// instance is an HTTP service of the example. A request can set it down: then its
// health check fails.
type instance struct {
	id       string
	listener net.Listener
	down     atomic.Bool
}

// newInstance listens on port, or on a free one for 0 or when it is taken.
func newInstance(ctx context.Context, id string, port int) (*instance, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address(port))
	if err != nil && port != 0 {
		l, err = lc.Listen(ctx, "tcp", address(0))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	return &instance{id: id, listener: l}, nil
}

func (i *instance) port() int   { return i.listener.Addr().(*net.TCPAddr).Port }
func (i *instance) url() string { return "http://" + i.listener.Addr().String() }

// run serves until ctx ends.
func (i *instance) run(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "hello from %s\n", i.id) })
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if i.down.Load() {
			http.Error(w, "told to be down", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	set := func(down bool, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			i.down.Store(down)
			fmt.Fprintf(w, text, i.id)
		}
	}
	mux.HandleFunc("POST /down", set(true, "the health check of %s fails from now on\n"))
	mux.HandleFunc("POST /up", set(false, "the health check of %s passes again\n"))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(i.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("%s: %w", i.id, err)
	case <-ctx.Done():
		err := server.Close()
		<-served
		return err
	}
}

func closeAll(list []*instance) error {
	var errs []error
	for _, i := range list {
		errs = append(errs, i.listener.Close())
	}
	return errors.Join(errs...)
}

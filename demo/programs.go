package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// serve is one web service: it says hello on address until ctx ends, and
// prints the address when it does.
func serve(ctx context.Context, name, address string, out io.Writer) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "hello from %s", name)
	})}
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		return server.Close()
	}
}

// report is what app prints.
type report struct {
	Started time.Time
	Answers []string
}

// app depends on the web services: it requests each one that is healthy according to
// Consul at api.
func app(ctx context.Context, api string, out io.Writer) error {
	r := report{Started: time.Now()}
	healthy, _, err := passing(ctx, api, "web", 0)
	if err != nil {
		return err
	}
	for _, address := range healthy {
		answer, err := get(ctx, "http://"+address)
		if err != nil {
			return err
		}
		r.Answers = append(r.Answers, string(answer))
	}
	return json.NewEncoder(out).Encode(r)
}

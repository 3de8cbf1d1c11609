package dev

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// running is a running session.
type running struct {
	Places
	log  *buffer
	stop context.CancelFunc
	done chan error
}

// start runs what o says and returns when it has been announced.
func start(t *testing.T, o Options) *running {
	t.Helper()
	r := &running{log: &buffer{}, done: make(chan error, 1)}
	announced := make(chan Places, 1)
	o.Consul = consultest.Binary(t)
	o.Announce = func(p Places) error { announced <- p; return nil }
	o.Logger = func(string, bool) hclog.Logger {
		return hclog.New(&hclog.LoggerOptions{Output: r.log, Level: hclog.Info})
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	go func() { r.done <- Run(ctx, o) }()
	t.Cleanup(func() { _ = r.end() })
	select {
	case r.Places = <-announced:
	case err := <-r.done:
		r.done <- err
		t.Fatalf("Run: %v\n%s", err, r.log)
	case <-time.After(time.Minute):
		t.Fatalf("not announced within a minute\n%s", r.log)
	}
	return r
}

// end ends it and returns what Run has returned.
func (r *running) end() error {
	r.stop()
	err := <-r.done
	r.done <- err
	return err
}

func (r *running) client(t *testing.T) *consul.Client {
	t.Helper()
	c, err := consul.New(config.Consul{Address: r.HTTPAddr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// wantFile waits until the file named so holds what is wanted.
func (r *running) wantFile(t *testing.T, name string, holds func(text string) bool) {
	t.Helper()
	consultest.Eventually(t, name+" to follow", func(context.Context) error {
		data, err := os.ReadFile(filepath.Join(r.Dir, "files", name))
		if err == nil && !holds(string(data)) {
			err = errors.New(string(data))
		}
		return err
	})
}

// buffer may be written and read at the same time.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func post(t *testing.T, url string) {
	t.Helper()
	answer, err := http.Post(url, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, answer.Status, err)
	}
}

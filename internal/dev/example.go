package dev

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"text/template"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/templates"
)

// The example's files. Delimiters are [[ ]], since templates are among them.
//
//go:embed example
var exampleFiles embed.FS

// webPorts are those of the example's HTTP services, as they were written.
func webPorts(file string) map[string]int {
	found := map[string]int{}
	conf, err := config.Load([]string{file}, config.Options{})
	if err != nil {
		return found // none yet
	}
	for _, s := range conf.Services {
		found[s.ID] = s.Port
	}
	return found
}

// example starts the example's HTTP services and writes its files. What the
// user may have changed in a directory that is kept stays; the file with the
// ports is written each time.
func (s *session) example(ctx context.Context) (web []*instance, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(web))
		}
	}()
	dir := s.places.Dir
	conf := filepath.Join(dir, "config")
	for _, d := range []string{conf, filepath.Join(dir, "files"), filepath.Join(dir, "templates")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	generated := filepath.Join(conf, "web.hcl")
	type service struct {
		ID   string
		Port int
	}
	var values struct{ Web []service }
	before := webPorts(generated)
	for _, id := range []string{"web-1", "web-2"} {
		i, err := newInstance(ctx, id, before[id])
		if err != nil {
			return web, err
		}
		web = append(web, i)
		values.Web = append(values.Web, service{i.id, i.port()})
		s.places.Web = append(s.places.Web, i.url())
	}
	for _, f := range []struct {
		name, to string
		always   bool
	}{
		{"web.hcl", generated, true},
		{"example.hcl", filepath.Join(conf, "example.hcl"), false},
		{"overview.ctmpl", filepath.Join(dir, "templates", "overview.ctmpl"), false},
		{"cache.json", filepath.Join(dir, "cache.json"), false},
	} {
		if err := write(dir, f.name, f.to, f.always, values); err != nil {
			return web, err
		}
	}
	const shipped = "nginx-upstreams.ctmpl"
	text, err := templates.FS.ReadFile(shipped)
	if err != nil {
		return web, err
	}
	s.places.Config = []string{conf}
	return web, os.WriteFile(filepath.Join(dir, "templates", shipped), text, 0o644)
}

// write fills in an example file with values and paths below dir; one that is there stays, unless
// always.
func write(dir, name, to string, always bool, values any) error {
	if _, err := os.Stat(to); err == nil && !always {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := exampleFiles.ReadFile("example/" + name)
	if err != nil {
		return err
	}
	path := func(name string) string { return hclString(filepath.Join(dir, name)) }
	t, err := template.New(name).Delims("[[", "]]").Funcs(template.FuncMap{"path": path}).Parse(string(text))
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, values); err != nil {
		return fmt.Errorf("example %s: %w", name, err)
	}
	return os.WriteFile(to, b.Bytes(), 0o644)
}

// hclString quotes s for HCL.
func hclString(s string) string {
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(strconv.Quote(s))
}

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
			http.Error(w, "down on request", http.StatusServiceUnavailable)
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

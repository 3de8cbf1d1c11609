package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jorc/jorc/templates"
)

//go:embed jorc.hcl
var configuration string

// Bounds: what takes longer has failed.
const (
	startWithin = 90 * time.Second
	stepWithin  = 30 * time.Second
	stopWithin  = 20 * time.Second
)

// programs are the paths of all that is run.
type programs struct {
	self, jorc, consul string
}

// places is what `jorc dev -o json` prints.
type places struct {
	HTTPAddr string `json:"http_addr"`
	DNSAddr  string `json:"dns_addr"`
	Status   string `json:"status"`
	StateDir string `json:"state_dir"`
}

// stage is where the demo plays.
type stage struct {
	programs
	dir    string
	dev    *process
	places places
	web    []*instance
}

// instance is one web service.
type instance struct {
	name, host, address string
	process             *process
}

// newStage makes the demo's directory and what belongs in it.
func newStage(p programs) (*stage, error) {
	dir, err := os.MkdirTemp("", "jorc-demo-")
	if err != nil {
		return nil, err
	}
	s := &stage{programs: p, dir: dir}
	for i := range 3 {
		s.web = append(s.web, &instance{name: fmt.Sprintf("web-%d", i+1), host: fmt.Sprintf("127.0.0.%d", 11+i)})
	}
	return s, s.fill()
}

func (s *stage) fill() error {
	for _, d := range []string{"files", "tmp"} {
		if err := os.Mkdir(filepath.Join(s.dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(s.dir, "jorc.hcl"), []byte(strings.ReplaceAll(configuration, "DIR", s.dir)), 0o644); err != nil {
		return err
	}
	for _, name := range []string{"nginx-upstreams.ctmpl", "hosts.ctmpl", "hiera-services.yaml.ctmpl"} {
		text, err := templates.FS.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(s.dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// environment lets jorc's commands find the demo's Consul.
func (s *stage) environment() []string {
	env := []string{"CONSUL_BIN=" + s.consul, "TMPDIR=" + filepath.Join(s.dir, "tmp"), "CONSUL_HTTP_TOKEN=", "CONSUL_HTTP_TOKEN_FILE=", "CONSUL_HTTP_SSL=", "JORC_CONFIG=" + os.DevNull}
	if s.places.HTTPAddr != "" {
		env = append(env, "CONSUL_HTTP_ADDR="+s.places.HTTPAddr, "JORC_DNS_ADDR="+s.places.DNSAddr, "JORC_STATE_DIR="+s.places.StateDir)
	}
	return env
}

func (s *stage) api() string { return "http://" + s.places.HTTPAddr }

// startDev starts `jorc dev` and returns after its announcement.
func (s *stage) startDev(ctx context.Context) error {
	log, err := os.Create(s.log())
	if err != nil {
		return err
	}
	defer log.Close()
	said, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer said.Close()
	s.dev, err = start("jorc dev", s.environment(), out, log, syscall.SIGTERM,
		s.jorc, "dev", "--config", filepath.Join(s.dir, "jorc.hcl"), "-o", "json")
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	if err := bounded(ctx, said, func() error { return json.NewDecoder(said).Decode(&s.places) }); err != nil {
		return s.dev.silent(ctx, err)
	}
	return nil
}

func (s *stage) log() string { return filepath.Join(s.dir, "jorc-dev.log") }

// startWeb starts the process of an instance, which listens on the address it
// had or, the first time, on a free port.
func (s *stage) startWeb(ctx context.Context, i *instance) error {
	said, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer said.Close()
	address := i.address
	if address == "" {
		address = net.JoinHostPort(i.host, "0")
	}
	i.process, err = start(i.name, nil, out, nil, syscall.SIGKILL, s.self, "serve", i.name, address)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	var line string
	if err := bounded(ctx, said, func() error { line, err = bufio.NewReader(said).ReadString('\n'); return err }); err != nil {
		return i.process.silent(ctx, err)
	}
	i.address = strings.TrimSpace(line)
	return nil
}

// bounded calls read, whose file is closed when ctx ends first.
func bounded(ctx context.Context, file io.Closer, read func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = file.Close() })
	defer stop()
	err := read()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// definition writes an instance's definition, as Consul's own agents read them.
func (s *stage) definition(i *instance) (file string, err error) {
	host, port, err := net.SplitHostPort(i.address)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf(`{"service": {
  "name": "web", "id": %q, "address": %q, "port": %s, "tags": ["http"],
  "check": {"http": "http://%s/", "interval": "1s", "timeout": "1s"}
}}
`, i.name, host, port, i.address)
	file = filepath.Join(s.dir, i.name+".json")
	return file, os.WriteFile(file, []byte(text), 0o644)
}

// clear ends all processes and removes all files.
func (s *stage) clear() error {
	var errs []error
	for _, i := range s.web {
		if i.process != nil {
			i.process.kill()
		}
	}
	if s.dev != nil {
		if !s.dev.over() { // else that was the failure
			errs = append(errs, s.dev.stop(stopWithin))
		}
		left, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
		if errs = append(errs, err); len(left) > 0 {
			errs = append(errs, fmt.Errorf("jorc dev left %v behind", left))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

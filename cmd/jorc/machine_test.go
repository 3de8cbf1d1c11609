package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// machine is where the built program runs: a directory, a Consul and an
// environment.
type machine struct {
	t      *testing.T
	server *consultest.Server
	client *consul.Client
	dir    string
	env    []string
	wrap   []string // the program that agents run in; nil: none
}

func newMachine(t *testing.T, s *consultest.Server, conf string) *machine {
	t.Helper()
	m := &machine{t: t, server: s, client: s.Client(), dir: t.TempDir()}
	m.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + m.dir, "TMPDIR=" + m.dir,
		"CONSUL_HTTP_ADDR=" + s.HTTPAddr, "JORC_DNS_ADDR=" + s.DNSAddr, "JORC_STATE_DIR=" + m.path("state"),
		consultest.NoConfig,
	}
	m.configure(conf)
	return m
}

// configure writes the configuration; DIR in it is the machine's directory.
func (m *machine) configure(conf string) {
	m.t.Helper()
	m.write("jorc.hcl", strings.ReplaceAll(conf, "DIR", m.dir))
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) write(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(m.path(name), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(name string) string {
	m.t.Helper()
	data, err := os.ReadFile(m.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Fatal(err)
	}
	return string(data)
}

func (m *machine) wantFile(name, text string) {
	m.t.Helper()
	m.eventually(name, func() error {
		if got := m.read(name); got != text {
			return fmt.Errorf("got %q, want %q", got, text)
		}
		return nil
	})
}

func (m *machine) eventually(what string, check func() error) {
	m.t.Helper()
	consultest.Eventually(m.t, what, func(context.Context) error { return check() })
}

func (m *machine) put(key, value string) {
	m.t.Helper()
	if err := m.client.KVPut(m.t.Context(), &consul.KVPair{Key: key, Value: []byte(value)}); err != nil {
		m.t.Fatal(err)
	}
}

// services are the ids of what is registered at the agent, with maintenance
// where it is on.
func (m *machine) wantServices(want string) {
	m.t.Helper()
	m.eventually("services "+want, func() error {
		have, err := m.client.AgentServices(m.t.Context(), "")
		if err != nil {
			return err
		}
		checks, err := m.client.AgentChecks(m.t.Context(), "")
		if err != nil {
			return err
		}
		for _, word := range strings.Fields(want) {
			id, maintenance := strings.CutSuffix(word, "!")
			if _, on := checks["_service_maintenance:"+id]; have[id] == nil || on != maintenance {
				return fmt.Errorf("%s is not as wanted: %v, maintenance %v", id, have[id], on)
			}
		}
		if len(have) != len(strings.Fields(want)) {
			return fmt.Errorf("got %v", have)
		}
		return nil
	})
}

// command is the built program with the machine's environment.
func (m *machine) command(args ...string) *exec.Cmd {
	m.t.Helper()
	cmd := exec.Command(builtOnce(m.t), args...)
	cmd.Env, cmd.Dir = m.env, m.dir
	cmd.SysProcAttr = consultest.OwnGroup()
	return cmd
}

// run runs the program to its end.
func (m *machine) run(args ...string) result {
	m.t.Helper()
	cmd := m.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		m.t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

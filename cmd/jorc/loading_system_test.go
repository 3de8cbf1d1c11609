//go:build system

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
)

// memoryGroup makes a control group with that much memory, in version 2 or 1, and returns
// its directory and the name of the limit.
func memoryGroup(t *testing.T, limit int) (dir, name string) {
	t.Helper()
	root, name := "/sys/fs/cgroup", "memory.max"
	if all, err := os.ReadFile(root + "/cgroup.controllers"); err != nil || !strings.Contains(string(all), "memory") {
		root, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	}
	dir = filepath.Join(root, fmt.Sprintf("jorc-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	setGroup(t, dir, name, limit)
	return dir, name
}

func setGroup(t *testing.T, dir, name string, value int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(strconv.Itoa(value)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAgentWithoutMemory: the kernel kills an agent twice while it loads its templates. The
// third start keeps the service, renders nothing and says so; with more memory, a reload
// renders.
func TestAgentWithoutMemory(t *testing.T) {
	s := consultest.Start(t)
	m := newMachine(t, s, `
http { address = "127.0.0.1:0" }
member {}
service "web" { port = 80 }
template "t" {
  contents    = "{{ range ls \"app\" }}{{ len .Value }}\n{{ end }}"
  destination = "DIR/t"
}
`)
	if _, err := fleet.New(s.Client(), "jorc", "default").Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	const keys, size = 40, 400_000
	for i := range keys {
		p := &consul.KVPair{Key: fmt.Sprintf("app/%02d", i), Value: bytes.Repeat([]byte{'x'}, size)}
		if err := s.Client().KVPut(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	group, limit := memoryGroup(t, 48<<20)
	m.wrap = []string{"sh", "-c", "echo $$ >" + group + "/cgroup.procs && exec \"$@\"", "sh"}
	for range 2 {
		d := m.agent()
		<-d.ended
		if status := d.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
			t.Fatalf("the agent ended with %v, want that the kernel kills it", d.cmd.ProcessState)
		}
	}
	d := m.agent()
	m.wantServices("jorc web")
	const said = "no template is rendered until "
	m.eventually("the status", func() error {
		st := d.status()
		if !strings.HasPrefix(st.Resting, said) || st.Ready || len(st.Templates) != 1 || st.Templates[0].State != "held" {
			return fmt.Errorf("got %+v", st)
		}
		return nil
	})
	d.wantSaid(said)
	m.eventually("the host's report", func() error {
		if got := m.run("update", "why", s.Node); !strings.Contains(got.stdout, said) {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	})
	setGroup(t, group, limit, 1<<30)
	d.signal(syscall.SIGHUP)
	m.wantFile("t", strings.Repeat(fmt.Sprintln(size), keys))
	m.eventually("the status", func() error {
		if st := d.status(); st.Resting != "" || !st.Ready {
			return fmt.Errorf("got %+v", st)
		}
		return nil
	})
	d.signal(syscall.SIGTERM)
	d.wantExit(0)
}

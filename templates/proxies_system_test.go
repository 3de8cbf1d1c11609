//go:build system

package templates_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
)

// proxy is a real nginx or haproxy in a directory of its own, in front of the
// service web.
type proxy struct {
	name   string
	addr   string          // where it serves
	file   config.Template // the rendered part of its configuration
	args   []string
	output bytes.Buffer // read only after its end
	cmd    *exec.Cmd
	done   chan struct{}
}

// newNginx writes a configuration that includes the rendered file. Nothing is
// tried twice: what fails must show.
func newNginx(t *testing.T) *proxy {
	t.Helper()
	dir, addr := t.TempDir(), freeAddr(t)
	p := &proxy{name: "nginx", addr: addr}
	conf := filepath.Join(dir, "nginx.conf")
	p.args = []string{"nginx", "-p", dir, "-c", conf, "-g", "daemon off;"}
	write(t, conf, fmt.Sprintf(`user root;
worker_processes 2;
pid nginx.pid;
error_log stderr warn;
events { worker_connections 1024; }
http {
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    include %s/conf.d/*.conf;
    server {
        listen %s;
        location / {
            proxy_pass http://web;
            proxy_next_upstream off;
        }
    }
}
`, dir, addr))
	check, err := filepath.Abs("examples/nginx-check.sh")
	if err != nil {
		t.Fatal(err)
	}
	p.file = config.Template{
		Name: "nginx", Contents: text(t, "nginx-upstreams.ctmpl"), Destination: filepath.Join(dir, "conf.d", "upstreams.conf"), CreateDirs: true,
		Check:  []string{check, "{{.Staged}}", "{{.Destination}}", conf},
		Reload: []string{"nginx", "-p", dir, "-c", conf, "-s", "reload"},
	}
	return p
}

// newHaproxy writes a configuration beside which the rendered file is read.
func newHaproxy(t *testing.T) *proxy {
	t.Helper()
	dir, addr := t.TempDir(), freeAddr(t)
	p := &proxy{name: "haproxy", addr: addr}
	conf, pid, backends := filepath.Join(dir, "haproxy.cfg"), filepath.Join(dir, "haproxy.pid"), filepath.Join(dir, "backends.cfg")
	p.args = []string{"haproxy", "-W", "-db", "-p", pid, "-f", conf, "-f", backends}
	write(t, conf, fmt.Sprintf(`global
    maxconn 1000
defaults
    mode http
    retries 0
    timeout connect 2s
    timeout client 5s
    timeout server 5s
    timeout http-keep-alive 2s
frontend all
    bind %s
    default_backend web
`, addr))
	p.file = config.Template{
		Name: "haproxy", Contents: text(t, "haproxy-backends.ctmpl"), Destination: backends,
		Check:  []string{"haproxy", "-c", "-q", "-f", conf, "-f", "{{.Staged}}"},
		Reload: []string{"/bin/sh", "-c", `kill -USR2 "$(cat "$0")"`, pid},
	}
	return p
}

// start runs the proxy as a child in the foreground until the test ends.
func (p *proxy) start(t *testing.T) {
	t.Helper()
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.done = make(chan struct{})
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended is in its output
	}()
	t.Cleanup(func() {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		select {
		case <-p.done:
		case <-time.After(10 * time.Second):
			_ = p.cmd.Process.Kill()
			<-p.done
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", p.name, p.output.String())
		}
	})
	consultest.Eventually(t, p.name+" to serve", func(ctx context.Context) error {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", p.addr)
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

// workers are the processes that serve, old and new.
func (p *proxy) workers(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.cmd.Process.Pid))
	if err != nil {
		t.Fatalf("%s has ended: %v", p.name, err)
	}
	return strings.Fields(string(data))
}

// waitGone returns when none of the workers is left, and others have taken
// their place.
func (p *proxy) waitGone(t *testing.T, old []string) {
	t.Helper()
	consultest.Eventually(t, p.name+" to have reloaded", func(context.Context) error {
		now := p.workers(t)
		if len(now) == 0 || slices.ContainsFunc(now, func(w string) bool { return slices.Contains(old, w) }) {
			return fmt.Errorf("its workers are %v, before the change %v", now, old)
		}
		return nil
	})
}

// waitListed returns when the proxy's file lists the address, or does not.
func (p *proxy) waitListed(t *testing.T, addr string, want bool) {
	t.Helper()
	consultest.Eventually(t, fmt.Sprintf("%s's file to list %s: %v", p.name, addr, want), func(context.Context) error {
		data, err := os.ReadFile(p.file.Destination)
		if err == nil && strings.Contains(string(data), addr) != want {
			err = fmt.Errorf("it holds:\n%s", data)
		}
		return err
	})
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestProxiesAcceptOddCatalogs: whatever the catalog holds, the check commands
// of the examples accept what is rendered.
func TestProxiesAcceptOddCatalogs(t *testing.T) {
	t.Parallel()
	s := servers(t)
	for _, p := range []*proxy{newNginx(t), newHaproxy(t)} {
		for _, tag := range []string{`"http"`, `""`, `"none"`} {
			file := p.file
			file.Reload = nil // nothing runs
			file.Contents = set(t, set(t, file.Contents, "tag", `"http"`, tag), "always", `""`, `"web later"`)
			if err := engine(t, s, s.Client(), file).Once(t.Context()); err != nil {
				t.Errorf("%s, tag %s: %v", p.name, tag, err)
			}
		}
	}
}

// TestNginxCheckRefuses: the check sees what a snippet alone would not show.
func TestNginxCheckRefuses(t *testing.T) {
	t.Parallel()
	p := newNginx(t)
	staged := filepath.Join(t.TempDir(), "staged")
	for _, tc := range []struct {
		name, content, destination string
		code                       int
		says                       string
	}{
		{"good", "upstream web { server 127.0.0.1:1 down; }", p.file.Destination, 0, ""},
		{"broken", "upstream web {", p.file.Destination, 1, "unexpected end of file"},
		{"empty pool", "upstream web { }", p.file.Destination, 1, "no servers are inside upstream"},
		{"lost upstream", "upstream other { server 127.0.0.1:1; }", p.file.Destination, 1, `host not found in upstream "web"`},
		{"elsewhere", "", "/elsewhere/upstreams.conf", 2, "does not lie below"},
	} {
		write(t, staged, tc.content)
		cmd := exec.CommandContext(t.Context(), p.file.Check[0], staged, tc.destination, p.file.Check[3])
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != tc.code || !strings.Contains(string(out), tc.says) {
			t.Errorf("%s: %v, said %q; want exit code %d and %q", tc.name, err, out, tc.code, tc.says)
		}
	}
	if _, err := os.Stat(p.file.Destination); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the check touched the destination: %v", err)
	}
}

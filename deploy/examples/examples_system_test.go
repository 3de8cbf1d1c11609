//go:build system

package examples_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
)

// insideOf names the variable that tells a test that it is on a machine of its own: it holds
// the directory of jorc and of a replacement of systemctl.
const insideOf = "JORC_TEST_EXAMPLE_BIN"

// systemctl takes the place of systemd: it starts and reloads what the examples name.
const systemctl = `#!/bin/sh
set -eu
end() { # PIDFILE
	[ -s "$1" ] || return 0 # nginx -t makes an empty one
	pid=$(cat "$1")
	kill "$pid" 2>/dev/null || return 0
	while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
}
postgres_cluster() { pg_lsclusters -h | sed -n 's/^\([0-9]*\) *main .*/\1-main/p'; }
case "$*" in
"restart jorc")
	end /run/jorc.pid
	setsid jorc agent --config /etc/jorc >>/var/log/jorc.log 2>&1 &
	echo $! >/run/jorc.pid
	# Type=notify: systemd waits until the agent is ready.
	while kill -0 $! && ! curl -s -o /dev/null http://127.0.0.1:8520/healthz; do sleep 0.1; done ;;
"reload jorc") kill -HUP "$(cat /run/jorc.pid)" ;;
"restart nginx") end /run/nginx.pid; nginx ;;
"try-reload-or-restart nginx") [ ! -s /run/nginx.pid ] || nginx -s reload ;;
"restart haproxy")
	end /run/haproxy.pid
	setsid haproxy -W -db -p /run/haproxy.pid -f /etc/haproxy/haproxy.cfg -f /etc/haproxy/backends.cfg >>/var/log/haproxy.log 2>&1 & ;;
"try-reload-or-restart haproxy") [ ! -s /run/haproxy.pid ] || kill -USR2 "$(cat /run/haproxy.pid)" ;;
"restart prometheus")
	setsid prometheus --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/var/lib/prometheus/tsdb >>/var/log/prometheus.log 2>&1 & ;;
"try-restart app") echo restarted >>/var/log/app.log ;;
"stop postgresql") ! pg_ctlcluster "$(postgres_cluster)" status >/dev/null || pg_ctlcluster "$(postgres_cluster)" -m fast stop ;;
"start postgresql@$(postgres_cluster)")
	pg_ctlcluster "$(postgres_cluster)" status >/dev/null || env -i PATH="$PATH" pg_ctlcluster "$(postgres_cluster)" start ;;
*) echo "systemctl $*: unknown" >&2; exit 1 ;;
esac
`

// machine is what an example runs on: files, network and processes of its own, with Consul
// and jorc.
type machine struct {
	t     *testing.T
	env   []string
	enter []string // the command that runs others on this machine, if the test runs elsewhere
	logs  string   // where /var/log is, seen from the test
}

// newMachine returns the machine of a test. nil: the test has run, and is over.
func newMachine(t *testing.T, programs ...string) *machine {
	t.Helper()
	if !isolated(t, programs) {
		return nil
	}
	m := &machine{t: t, logs: "/var/log"}
	m.command("ip", "link", "set", "lo", "up")
	m.command("bash", "-ec", ownFiles, "/mnt")
	server := consultest.Start(t)
	m.env = append(environ(t), "CONSUL_HTTP_ADDR="+server.HTTPAddr, "JORC_DNS_ADDR="+server.DNSAddr)
	t.Cleanup(m.showLogs)
	return m
}

// isolated reports whether the test is in namespaces of its own. The first call runs the whole
// test again in such.
func isolated(t *testing.T, programs []string) bool {
	t.Helper()
	for _, program := range append(programs, "unshare", "nsenter", "ip", "curl") {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("no program %s", program)
		}
	}
	if os.Getenv(insideOf) != "" {
		(&machine{t: t}).command("mount", "-t", "tmpfs", "layers", "/mnt")
		return true
	}
	t.Parallel()
	bin := t.TempDir()
	consultest.Build(t, bin, "cmd/jorc")
	if err := os.WriteFile(filepath.Join(bin, "systemctl"), []byte(systemctl), 0o755); err != nil {
		t.Fatal(err)
	}
	// The shell is the first process, which takes the ends of daemons.
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
		"bash", "-c", `"$0" "$@"; exit $?`, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	if end, ok := t.Deadline(); ok { // its own output, not a dump of this process
		cmd.Args = append(cmd.Args, "-test.timeout="+(time.Until(end)*9/10).String())
	}
	cmd.Env = append(os.Environ(), insideOf+"="+bin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("on a machine of its own: %v\n%s", err, out)
	}
	return false
}

// ownFiles makes /etc, /var and what is installed elsewhere copies, whose changes are below
// the directory $0.
const ownFiles = `
for dir in /etc /var /usr/lib /usr/local; do
	layer=$0/${dir//\//_}
	mkdir -p $layer ${layer}_work
	mount -t overlay overlay -o lowerdir=$dir,upperdir=$layer,workdir=${layer}_work $dir
done
mount -t tmpfs run /run
if [ ! -e "$0/clean" ]; then
	rm -rf /etc/jorc /var/lib/jorc /var/log/nginx/error.log /etc/nginx/sites-enabled/default
	touch "$0/clean"
fi
`

// environ is the environment of a machine's commands.
func environ(t *testing.T) []string {
	return []string{"PATH=" + os.Getenv(insideOf) + ":/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + t.TempDir()}
}

// showLogs shows the ends of the logs of a test that failed.
func (m *machine) showLogs() {
	if !m.t.Failed() {
		return
	}
	for _, pattern := range []string{"jorc.log", "consul.log", "haproxy.log", "prometheus.log", "nginx/error.log", "postgresql/*.log"} {
		all, err := filepath.Glob(filepath.Join(m.logs, pattern))
		if err != nil {
			m.t.Error(err)
		}
		for _, name := range all {
			if data, err := os.ReadFile(name); err == nil && len(data) > 0 {
				m.t.Logf("%s:\n%s", name, data[max(0, len(data)-4000):])
			}
		}
	}
}

func (m *machine) command(args ...string) {
	m.t.Helper()
	if out, err := exec.CommandContext(m.t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		m.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// shell runs a line of an example in its directory.
func (m *machine) shell(dir, line string) (output string, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp(m.t.TempDir(), "output") // not a pipe, which a daemon keeps open
	if err != nil {
		return "", err
	}
	defer file.Close()
	args := slices.Concat(m.enter, []string{"bash", "-ec", "cd \"$0\"\n" + line, dir})
	cmd := exec.CommandContext(m.t.Context(), args[0], args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = m.env, file, file
	err = cmd.Run()
	data, readErr := os.ReadFile(file.Name())
	return string(data), errors.Join(err, readErr)
}

var (
	// step is what a README asks for: commands, on the hosts that a comment names, or a host
	// that is switched off or on.
	step      = regexp.MustCompile("(?ms)^<!-- power (off|on): (\\S+) -->$|(?:^<!-- on: ([^>]*) -->\n)?^```sh\n(.*?)\n```$")
	continued = strings.NewReplacer("\\\n", " ")
)

// follow types the commands that the README of an example prints, line by line.
func (m *machine) follow(dir string) { follow(m.t, dir, map[string]*machine{"": m}, nil) }

// follow types the commands of a README on the machines that it names.
func follow(t *testing.T, dir string, machines map[string]*machine, power func(host, state string)) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, found := range step.FindAllStringSubmatch(string(data), -1) {
		if found[1] != "" {
			power(found[2], found[1])
			continue
		}
		names := strings.Fields(found[3])
		if found[3] == "" {
			names = []string{""}
		}
		for _, name := range names {
			m := machines[name]
			if m == nil {
				t.Fatalf("%s/README.md: no host %q for:\n%s", dir, name, found[4])
			}
			for line := range strings.Lines(continued.Replace(found[4])) {
				lines++
				if out, err := m.shell(dir, line); err != nil {
					t.Fatalf("%s %s: %v\n%s", name, strings.TrimSpace(line), err, out)
				}
			}
		}
	}
	if lines == 0 {
		t.Fatalf("%s/README.md has no commands", dir)
	}
}

// eventually waits until a line succeeds, and its output has what is wanted.
func (m *machine) eventually(what, line, want string) {
	m.t.Helper()
	consultest.Eventually(m.t, what, func(context.Context) error {
		out, err := m.shell(".", line)
		if err != nil || !strings.Contains(out, want) {
			return fmt.Errorf("%s: %v, want %q: %s", line, err, want, out)
		}
		return nil
	})
}

// app is the application of an example, on port 8080.
type app struct{ sick atomic.Bool }

func (m *machine) app() *app {
	a := &app{}
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		if a.sick.Load() {
			http.Error(w, "sick", http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "app_requests_total 1") })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello from the app") })
	server := &http.Server{Addr: ":8080", Handler: mux}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	m.t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return a
}

// TestNginxBeforeAnApp follows deploy/examples/nginx.
func TestNginxBeforeAnApp(t *testing.T) {
	m := newMachine(t, "nginx")
	if m == nil {
		return
	}
	a := m.app()
	m.follow("nginx")
	a.sick.Store(true)
	m.eventually("an app that is not healthy to leave", "curl -s -o /dev/null -w '%{http_code}' http://localhost/", "50")
	a.sick.Store(false)
	m.eventually("a healthy app to return", "curl -fsS http://localhost/", "hello from the app")
}

// TestHaproxyWithHealth follows deploy/examples/haproxy.
func TestHaproxyWithHealth(t *testing.T) {
	m := newMachine(t, "haproxy")
	if m == nil {
		return
	}
	a := m.app()
	m.follow("haproxy")
	a.sick.Store(true)
	m.eventually("an app that is not healthy to leave", "curl -s -o /dev/null -w '%{http_code}' http://localhost:8000/", "503")
	a.sick.Store(false)
	m.eventually("a healthy app to return", "curl -fsS http://localhost:8000/", "hello from the app")
}

// TestPrometheusTargets follows deploy/examples/prometheus.
func TestPrometheusTargets(t *testing.T) {
	m := newMachine(t, "prometheus", "promtool", "jq")
	if m == nil {
		return
	}
	m.app()
	m.follow("prometheus")
	m.eventually("the app to be scraped", `curl -fsS 'http://localhost:9090/api/v1/query?query=app_requests_total' | jq -r '.data.result[].value[1]'`, "1")
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/dev"
)

// freeAddresses is the first of loopback addresses for a fleet, apart from those of other tests
// and of a fleet that a developer runs.
func freeAddresses(t *testing.T) string {
	t.Helper()
	for range 100 {
		first := fmt.Sprintf("127.%d.%d.2", 128+rand.N(127), rand.N(256))
		l, err := net.Listen("tcp", first+":8500")
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return first
	}
	t.Fatal("no free loopback addresses found")
	return ""
}

// newLocalFleet starts `jorc dev` with three hosts and waits until it says what.
func newLocalFleet(t *testing.T, what string, args ...string) (d *process, first string) {
	t.Helper()
	first = freeAddresses(t)
	d = newDev(t, append([]string{"--hosts", "3", "--first-address", first}, args...)...)
	d.wantSaid(what)
	return d, first
}

const (
	fleetReady    = "Ctrl-C ends it all.\n"
	fleetStarting = "3 hosts are starting; their logs are in "
)

// processes are the command lines of what works in the machine's directory, by their numbers.
func (m *machine) processes() map[int]string {
	m.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		m.t.Fatal(err)
	}
	found := map[int]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(data, []byte(m.dir)) { // it may have ended
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			m.t.Fatal(err)
		}
		found[pid] = strings.ReplaceAll(string(data), "\x00", " ")
	}
	return found
}

// wantNothingLeft fails if a process or a file of a fleet is left.
func (m *machine) wantNothingLeft() {
	m.t.Helper()
	if left := m.processes(); len(left) > 0 {
		m.t.Errorf("still running: %v", left)
	}
	if left, err := os.ReadDir(m.dir); len(left) > 0 || err != nil {
		m.t.Errorf("left: %v, %v", left, err)
	}
}

// guide is what a fleet's announcement says that one can type.
type guide struct {
	eval   string // sets the shell
	things []thing
}

// thing is something to try.
type thing struct {
	what  string
	lines []string
}

// guideOf reads the announcement.
func guideOf(t *testing.T, said string) (g guide) {
	t.Helper()
	for line := range strings.Lines(said) {
		line = strings.TrimRight(line, "\n")
		command, isCommand := strings.CutPrefix(line, "    ")
		switch {
		case isCommand && g.eval == "":
			g.eval = command
		case isCommand && len(g.things) > 0:
			last := &g.things[len(g.things)-1]
			last.lines = append(last.lines, command)
		case strings.HasPrefix(line, "  ") && g.eval != "":
			g.things = append(g.things, thing{what: strings.TrimSpace(line)})
		}
	}
	if !strings.HasPrefix(g.eval, "eval ") {
		t.Fatalf("no eval in %s", said)
	}
	return g
}

// typed runs a line in a shell that the guide's first line has set. What the shell had before are
// the variables of another Consul.
func (d *process) typed(g guide, line string) result {
	d.m.t.Helper()
	cmd := exec.Command("sh", "-c", g.eval+"\n"+line)
	cmd.Env = append(slices.Clone(d.m.env), "JORC_CLUSTER=other", "JORC_NODE=other", "JORC_CONFIG=/nonexistent")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		d.m.t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// step is what a line of the guide does: its exit code, what it prints, how many lines have a
// text, and files of hosts after it.
type step struct {
	code  int
	says  []string
	count map[string]int
	files map[string]string
}

// TestFleetGuide types each line that a fleet of five hosts prints, and sees happen what it says.
func TestFleetGuide(t *testing.T) {
	t.Parallel()
	first := freeAddresses(t)
	d := newDev(t, "--hosts", "5", "--first-address", first)
	d.wantSaid(fleetReady)
	g := guideOf(t, d.said.String())
	page, err := http.Get(rowOf(t, d.said.String(), "dashboard"))
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	if page.StatusCode != http.StatusOK {
		t.Errorf("the dashboard answers %s", page.Status)
	}
	hosts := func(file, text string, but ...string) map[string]string {
		all := map[string]string{}
		for i := range 5 {
			all[fmt.Sprintf("host-%d/%s", i+1, file)] = text + "\n"
		}
		if len(but) > 0 {
			all["host-3/"+file] = but[0] + "\n"
		}
		return all
	}
	plain := step{}
	want := [][]step{
		{
			plain,
			plain,
			{code: exitStopped, says: []string{"1 failed, and the policy allows 0: host-2"}, files: map[string]string{"host-2/installed": "v1\n"}},
			{says: []string{"paused", "host-2 since", "no space left on device"}},
			plain,
			plain,
			plain,
			{files: hosts("installed", "v2")},
		},
		{
			plain,
			{says: []string{"stopped"}},
			{says: []string{"param workers", "workers 0", " restor"}, count: map[string]int{" stopped ": 1, " waiting ": 4}, files: hosts("pool.conf", "workers 4")},
			plain,
			{says: []string{"done"}},
			{count: map[string]int{"workers 8": 5}, files: hosts("pool.conf", "workers 8")},
		},
		{
			plain,
			plain,
			{code: exitStopped, says: []string{"host-3: it is held", "its disk is replaced"}, files: hosts("installed", "v3", "v2")},
			{code: exitStopped, says: []string{"held", "its disk is replaced"}},
			plain,
			{files: hosts("installed", "v3")},
		},
		{
			plain,
			{code: exitFailed, says: []string{"host-2"}},
			{says: []string{"backup-1"}},
			{says: []string{"no space left on device"}},
			plain,
			{files: hosts("installed.bak", "v3")},
		},
		{
			plain,
			plain,
			{says: []string{"host-3: it is in maintenance"}},
			plain,
			{says: []string{"version.v4", "1 of 1 hosts are out of service"}, files: hosts("installed", "v3")},
			plain,
			{files: hosts("installed", "v4")},
		},
	}
	if len(g.things) != len(want) {
		t.Fatalf("the guide has %d things, want %d: %+v", len(g.things), len(want), g.things)
	}
	dir := strings.TrimSuffix(rowOf(t, d.said.String(), "configuration"), "/host-*/config")
	for i, thing := range g.things {
		if len(thing.lines) != len(want[i]) {
			t.Fatalf("%s: %d lines, want %d", thing.what, len(thing.lines), len(want[i]))
		}
		for j, line := range thing.lines {
			got, want := d.typed(g, line), want[i][j]
			t.Logf("%s\n$ %s\n%s%sexit %d", thing.what, line, got.stdout, got.stderr, got.code)
			if got.code != want.code {
				t.Errorf("%s: exit %d, want %d", line, got.code, want.code)
			}
			for _, text := range want.says {
				if !strings.Contains(got.stdout+got.stderr, text) {
					t.Errorf("%s does not print %q", line, text)
				}
			}
			for text, n := range want.count {
				if got := strings.Count(got.stdout, text); got != n {
					t.Errorf("%s prints %q %d times, want %d", line, text, got, n)
				}
			}
			for name, text := range want.files {
				d.m.eventually("what is in "+name+" after "+line, func() error {
					data, err := os.ReadFile(filepath.Join(dir, name))
					if err == nil && string(data) != text {
						err = fmt.Errorf("got %q, want %q", data, text)
					}
					return err
				})
			}
		}
	}
	const most = 3 << 19 // KiB: 1.5 GiB
	if used := d.memory(); used == 0 || used > most {
		t.Errorf("the fleet has %d KiB of memory, want at most %d", used, most)
	}
	if said := d.said.String(); strings.Contains(said, "[INFO]") || strings.Contains(said, "[WARN]") {
		t.Error("a log is mixed with the guide")
	}
	d.signal(syscall.SIGINT)
	d.wantExit(exitOK)
	d.m.wantNothingLeft()
}

// memory is how much memory jorc and the processes in the machine's directory have, in KiB. Pages
// that several of them use count for each.
func (d *process) memory() (used int) {
	d.m.t.Helper()
	all := d.m.processes()
	all[d.cmd.Process.Pid] = "jorc dev"
	for pid := range all {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, rest, found := strings.Cut(string(data), "\nVmRSS:")
		if err != nil || !found { // a check that has ended
			continue
		}
		n, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			d.m.t.Error(err)
		}
		used += n
	}
	return used
}

// rowOf is the value in a row of an announcement.
func rowOf(t *testing.T, said, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(said, "  "+name+" ")
	if !found {
		t.Fatalf("no %s in %s", name, said)
	}
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}

// TestFleetEnds: whichever way a fleet ends, it leaves nothing.
func TestFleetEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, from string
		ends       syscall.Signal
	}{
		{"SIGINT", fleetReady, syscall.SIGINT},
		{"SIGTERM", fleetReady, syscall.SIGTERM},
		{"SIGINT at its start", fleetStarting, syscall.SIGINT},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d, first := newLocalFleet(t, test.from)
			d.signal(test.ends)
			d.wantExit(exitOK)
			d.m.wantNothingLeft()
			if c, err := net.Dial("tcp", first+":8500"); err == nil {
				t.Errorf("%s still accepts connections", first)
				_ = c.Close()
			}
		})
	}
}

// TestFleetProcessEnds: when a process of a fleet ends by itself, jorc says so and ends the others.
func TestFleetProcessEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ program, want string }{
		{"/host-2/consul.json", "jorc: Consul of host-2 (pid %d) has ended: signal: killed; "},
		{"agent --config ", "jorc: the jorc agent of host-1 (pid %d) has ended: signal: killed; "},
	} {
		t.Run(test.program, func(t *testing.T) {
			t.Parallel()
			d, _ := newLocalFleet(t, fleetReady)
			all := d.m.processes()
			if len(all) != 1+2*3 {
				t.Errorf("%d processes, want a Consul server, and a Consul and a jorc for each host: %v", len(all), all)
			}
			for pid, line := range all {
				if !strings.Contains(line, test.program) || strings.Contains(line, "agent --config ") && !strings.Contains(line, "/host-1/") {
					continue
				}
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				d.wantExit(exitFailed)
				d.wantSaid(fmt.Sprintf(test.want, pid))
				d.m.wantNothingLeft()
				return
			}
			t.Errorf("no process with %s in %v", test.program, all)
		})
	}
}

// TestFleetKilled: a fleet dies with jorc, however jorc dies, and the next jorc dev removes its
// directory and a process that outlived it.
func TestFleetKilled(t *testing.T) {
	t.Parallel()
	d, first := newLocalFleet(t, fleetReady)
	d.signal(syscall.SIGKILL)
	d.wantExit(-1)
	d.m.eventually("all processes to end", func() error {
		if left := d.m.processes(); len(left) > 0 {
			return fmt.Errorf("still running: %v", left)
		}
		return nil
	})
	hosts, err := filepath.Glob(d.m.path("jorc-dev-*/host-2"))
	if err != nil || len(hosts) != 1 {
		t.Fatalf("directories of host-2: %v, %v, want the killed one's", hosts, err)
	}
	outlived := recordedProcess(t, filepath.Join(hosts[0], "jorc.pid"), false)
	next := d.m.start("dev", "--hosts", "3", "--first-address", first)
	next.wantSaid(fleetReady)
	<-outlived
	next.signal(syscall.SIGINT)
	next.wantExit(exitOK)
	d.m.wantNothingLeft()
}

// TestFleetKept: a fleet in a kept directory continues with what it had, at other addresses.
func TestFleetKept(t *testing.T) {
	t.Parallel()
	kept := filepath.Join(t.TempDir(), "a 'b'")
	d, _ := newLocalFleet(t, fleetReady, "--keep", kept)
	g := guideOf(t, d.said.String())
	for _, line := range []string{"jorc update trigger v2 --max-parallel 3", "jorc update wait"} {
		if got := d.typed(g, line); got.code != exitOK {
			t.Fatalf("%s: %+v", line, got)
		}
	}
	d.signal(syscall.SIGINT)
	d.wantExit(exitOK)
	d, _ = newLocalFleet(t, fleetReady, "--keep", kept)
	if got := d.typed(guideOf(t, d.said.String()), "jorc update hosts v2"); got.stdout != "host-1\nhost-2\nhost-3\n" {
		t.Errorf("hosts of v2: %+v", got)
	}
}

// TestFleetInTheWay: a second fleet at the same addresses, and an address that is taken, are clear
// errors; the first fleet continues, and reads its configurations again when it is asked to. What it
// writes as JSON, and sets a shell to, is its own.
func TestFleetInTheWay(t *testing.T) {
	t.Parallel()
	d, first := newLocalFleet(t, "\n}\n", "-o", "json")
	var f dev.Fleet
	said := d.said.String()
	if err := json.Unmarshal([]byte(said[strings.Index(said, "{\n"):]), &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Hosts) != 3 || f.Hosts[0].Address != first || f.PID != d.cmd.Process.Pid || f.Kept || !strings.HasPrefix(f.Dir, d.m.dir) {
		t.Errorf("announced %+v", f)
	}
	want := fmt.Sprintf("jorc: %s has a host of another fleet (pid %d, data in %s): end that one, or choose other addresses with --first-address", first, f.PID, f.Dir)
	if got := d.m.run("dev", "--hosts", "3", "--first-address", first); got.code != exitFailed || !strings.HasPrefix(got.stderr, want) {
		t.Errorf("a second one: %+v, want %s", got, want)
	}

	env := d.m.run("dev", "--env", "--first-address", first)
	for _, line := range []string{
		"export CONSUL_HTTP_ADDR=http://" + first + ":8500", "export JORC_CONFIG=" + f.Hosts[0].Config, "export JORC_CLUSTER=default",
		"unset CONSUL_HTTP_TOKEN", "unset CONSUL_HTTP_SSL", "unset JORC_DNS_ADDR", "unset JORC_STATE_DIR",
		"export PATH=" + filepath.Dir(builtOnce(t)) + ":" + os.Getenv("PATH"),
	} {
		if env.code != exitOK || !strings.Contains(env.stdout, line+"\n") {
			t.Errorf("--env: %+v, want %s", env, line)
		}
	}
	var variables map[string]string
	env = d.m.run("dev", "--env", "--first-address", first, "-o", "json")
	if err := json.Unmarshal([]byte(env.stdout), &variables); err != nil || variables["JORC_CLUSTER"] != "default" {
		t.Errorf("--env -o json: %+v, %v", env, err)
	}

	other := freeAddresses(t)
	l, err := net.Listen("tcp", other+":8520")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := d.m.run("dev", "--hosts", "3", "--first-address", other)
	if want := "jorc: " + other + ":8520 cannot be had: "; got.code != exitFailed || !strings.HasPrefix(got.stderr, want) || !strings.Contains(got.stderr, "address already in use") {
		t.Errorf("a taken address: %+v, want %s", got, want)
	}
	if left, err := filepath.Glob(d.m.path("jorc-dev*")); err != nil || len(left) != 1 {
		t.Errorf("directories: %v, %v, want the fleet's", left, err)
	}
	d.signal(syscall.SIGHUP)
	for _, h := range f.Hosts {
		d.m.eventually(h.Name+" to read its configuration again", func() error {
			log, err := os.ReadFile(filepath.Join(h.Dir, "jorc.log"))
			if err == nil {
				err = lacks(string(log), "configuration reloaded")
			}
			return err
		})
	}
	d.signal(syscall.SIGTERM)
	d.wantExit(exitOK)
}

// TestFleetWrongUsage: what cannot be is said at once.
func TestFleetWrongUsage(t *testing.T) {
	t.Parallel()
	m := &machine{t: t, dir: t.TempDir(), env: []string{"PATH=/nonexistent"}}
	first := freeAddresses(t)
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"--hosts 2", exitUsage, "jorc: --hosts is 2, but must be 3 to 20; see 'jorc dev --help'"},
		{"--hosts 21", exitUsage, "jorc: --hosts is 21, but must be 3 to 20; see 'jorc dev --help'"},
		{"--hosts 3 --config x", exitUsage, "jorc: --config cannot be given with --hosts: each host has its own"},
		{"--hosts 3 --cluster x", exitUsage, "jorc: --cluster cannot be given: jorc dev brings its own"},
		{"--hosts 3 --first-address x", exitUsage, "jorc: --first-address: "},
		{"--hosts 3 --first-address 10.0.0.1", exitUsage, "jorc: --first-address: 3 hosts from 10.0.0.1 on: the addresses must be in 127.0.0.0/8"},
		{"--hosts 3 --first-address 127.0.0.1", exitUsage, "jorc: --first-address: 3 hosts from 127.0.0.1 on: "},
		{"--hosts 3 --first-address 127.255.255.254", exitUsage, "jorc: --first-address: 3 hosts from 127.255.255.254 on: "},
		{"--hosts 3 --first-address ::1", exitUsage, "jorc: --first-address: 3 hosts from ::1 on: "},
		{"--first-address 127.0.0.2", exitUsage, "jorc: --first-address needs --hosts or --env"},
		{"--env --hosts 3", exitUsage, "jorc: --env and --hosts exclude each other"},
		{"--env --keep x", exitUsage, "jorc: --env and --keep exclude each other"},
		{"--hosts 3 --first-address " + first, exitFailed, "jorc: no consul program found: install Consul ("},
		{"--env --first-address " + first, exitFailed, "jorc: no fleet is running at " + first},
	} {
		got := m.run(append([]string{"dev"}, strings.Fields(test.args)...)...)
		if got.code != test.code || got.stdout != "" || !strings.HasPrefix(got.stderr, test.want) {
			t.Errorf("jorc dev %s: got %+v, want %d, %s", test.args, got, test.code, test.want)
		}
	}
	if got := m.run("dev", "--env", "--first-address", first); !strings.Contains(got.stderr, "jorc dev --hosts 5") {
		t.Errorf("without a fleet: %+v, want what to do", got)
	}
	s := consultest.Start(t)
	if got := m.run("dev", "--env", "--first-address", s.IP); got.code != exitFailed || !strings.Contains(got.stderr, "no fleet is running at "+s.IP+": the Consul there is another one") {
		t.Errorf("another Consul: %+v", got)
	}
}

//go:build system

package examples_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// serverIP is the address of Consul's server on the network of the hosts.
const serverIP = "10.20.0.1"

// fleet is several hosts in one network, with Consul's server.
type fleet struct {
	t     *testing.T
	hosts map[string]*host
}

// host is one of them: files, network and processes of its own, with a Consul agent. What it
// has on its disk survives that it is switched off.
type host struct {
	machine
	name, ip string
	disk     string
	running  *exec.Cmd
	first    int // its first process
}

// newFleet returns hosts that are switched on. nil: the test has run, and is over.
func newFleet(t *testing.T, names []string, programs ...string) *fleet {
	t.Helper()
	if !isolated(t, programs) {
		return nil
	}
	f := &fleet{t: t, hosts: map[string]*host{}}
	m := &machine{t: t}
	m.command("ip", "link", "set", "lo", "up")
	m.command("ip", "link", "add", "hosts", "type", "bridge")
	m.command("ip", "addr", "add", serverIP+"/24", "dev", "hosts")
	m.command("ip", "link", "set", "hosts", "up")
	m.command("mount", "-t", "tmpfs", "shared", "/srv")
	consultest.Start(t, consultest.WithConfig(map[string]any{"bind_addr": serverIP, "advertise_addr": serverIP}))
	env := environ(t)
	for i, name := range names {
		h := &host{name: name, ip: fmt.Sprintf("10.20.0.%d", 11+i), disk: filepath.Join("/mnt", name)}
		h.machine = machine{t: t, env: env, logs: filepath.Join(h.disk, "_var/log")}
		f.hosts[name] = h
		t.Cleanup(h.showLogs)
		t.Cleanup(h.off)
		h.on()
	}
	return f
}

// follow types the commands of an example's README on the hosts that it names.
func (f *fleet) follow(dir string) {
	f.t.Helper()
	machines := map[string]*machine{}
	for name, h := range f.hosts {
		machines[name] = &h.machine
	}
	follow(f.t, dir, machines, func(name, state string) {
		f.t.Helper()
		switch h := f.hosts[name]; {
		case h == nil:
			f.t.Fatalf("%s/README.md: no host %q", dir, name)
		case state == "off":
			h.off()
		default:
			h.on()
			h.must("systemctl restart jorc") // its unit is enabled
		}
	})
}

// on starts the host with its Consul agent.
func (h *host) on() {
	h.t.Helper()
	// The shell is the host's first process, and takes the ends of daemons.
	h.running = exec.Command("unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc",
		"bash", "-ec", "hostname "+h.name+"\n"+ownFiles+"ip link set lo up\necho on\nwhile :; do sleep 3600; done", h.disk)
	h.running.Stderr = os.Stderr
	stdout, err := h.running.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.running.Start(); err != nil {
		h.t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "on\n" {
		h.t.Fatalf("%s does not start: %q, %v", h.name, line, err)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", h.running.Process.Pid))
	if err != nil {
		h.t.Fatal(err)
	}
	first := strings.TrimSpace(string(children))
	if h.first, err = strconv.Atoi(first); err != nil {
		h.t.Fatalf("the first process of %s: %v", h.name, err)
	}
	h.enter = []string{"nsenter", "--target", first, "--mount", "--net", "--uts", "--pid", "--"}
	port := "to-" + h.name
	h.command("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", first)
	h.command("ip", "link", "set", port, "master", "hosts", "up")
	conf := map[string]any{
		"node_name": h.name, "datacenter": "dc1", "log_level": "warn", "data_dir": "/var/lib/consul",
		"bind_addr": h.ip, "client_addr": "127.0.0.1", "retry_join": []string{serverIP}, "retry_interval": "500ms",
		"leave_on_terminate": false, "skip_leave_on_interrupt": true, "disable_update_check": true, "disable_coordinates": true,
		"ports":      map[string]any{"grpc": -1, "grpc_tls": -1, "serf_wan": -1},
		"gossip_lan": map[string]any{"gossip_interval": "200ms", "probe_interval": "1s"},
	}
	data, err := json.Marshal(conf)
	if err != nil {
		h.t.Fatal(err)
	}
	file := filepath.Join(h.disk, "consul.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		h.t.Fatal(err)
	}
	h.must("ip addr add " + h.ip + "/24 dev eth0; ip link set eth0 up")
	h.must(fmt.Sprintf("setsid %s agent -config-file=%s >>/var/log/consul.log 2>&1 &", consultest.Binary(h.t), file))
	h.eventually(h.name+" to be in Consul", "curl -fsS http://127.0.0.1:8500/v1/catalog/node/"+h.name, h.ip)
}

// off ends all that runs on the host at once, as without power.
func (h *host) off() {
	if h.running == nil {
		return
	}
	// All others end with the first process, and only then it and unshare do.
	if err := syscall.Kill(h.first, syscall.SIGKILL); err != nil {
		h.t.Errorf("%s: %v", h.name, err)
	}
	_ = h.running.Wait() // it tells of the signal
	h.running = nil
}

// must runs a line on the host.
func (h *host) must(line string) (output string) {
	h.t.Helper()
	out, err := h.shell(".", line)
	if err != nil {
		h.t.Fatalf("%s: %s: %v\n%s", h.name, line, err, out)
	}
	return out
}

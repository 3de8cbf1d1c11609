//go:build fleet

package fleet_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/fleettest"
)

// nothing is a workflow that does nothing.
const nothing = `
member { roles = ["web"] }
workflow "nothing" {
  task "nothing" {
    command = ["true"]
  }
}
`

// What the hosts and the operator have for SSH and for Ansible. Of Ansible's settings these are the fast ones: Python is not
// searched for, modules are not copied to the hosts first, all hosts are asked at the same time.
const (
	sshdConfig = `Port 22
HostKey %[1]s/host_key
AuthorizedKeysFile %[1]s/key.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
MaxStartups 100
`
	sshConfig = `User root
IdentityFile %[1]s/key
StrictHostKeyChecking no
UserKnownHostsFile %[1]s/known_hosts
LogLevel ERROR
`
	ansibleConfig = `[defaults]
inventory = %[1]s/inventory
interpreter_python = /usr/bin/python3
remote_tmp = %[1]s/remote
local_tmp = %[1]s/local
forks = %[2]d
[ssh_connection]
pipelining = True
ssh_args = -F %[1]s/ssh_config -o ControlMaster=%[3]s -o ControlPersist=60s
control_path_dir = /tmp
`
)

// BenchmarkRunBesideAnsible measures how long a command that does nothing takes on the same five hosts, until the caller knows that it
// did on each: a run of jorc, Ansible, Ansible whose connections are open already, and ssh to all hosts at the same time, which is
// the least that SSH needs. They take turns. The figures are the medians in milliseconds; see docs/performance.md.
func BenchmarkRunBesideAnsible(b *testing.B) {
	for _, program := range []string{"/usr/sbin/sshd", "ssh", "ssh-keygen", "ansible"} {
		if _, err := exec.LookPath(program); err != nil {
			b.Fatalf("%v (apt-get install openssh-server ansible)", err)
		}
	}
	var hosts []fleettest.HostSpec
	for i := range 5 {
		hosts = append(hosts, fleettest.HostSpec{Name: fmt.Sprintf("host-%d", i+1), Orchestrator: i == 0, Config: nothing})
	}
	f := fleettest.New(b, fleettest.Options{Hosts: hosts})
	op := f.Operator
	dir := op.Path("ssh")
	op.Exec("mkdir", "-p", "/run/sshd", dir).OK()
	for _, key := range []string{"key", "host_key"} {
		op.Exec("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", dir+"/"+key).OK()
	}
	var addresses []string
	for _, h := range f.Hosts {
		addresses = append(addresses, h.IP)
	}
	write := func(name, format string, args ...any) { op.Write("ssh/"+name, fmt.Sprintf(format, args...)) }
	write("sshd_config", sshdConfig, dir)
	write("ssh_config", sshConfig, dir)
	write("inventory", "%s\n", strings.Join(addresses, "\n"))
	write("each.cfg", ansibleConfig, dir, len(addresses), "no")
	write("open.cfg", ansibleConfig, dir, len(addresses), "auto")
	for _, h := range f.Hosts {
		h.Run("sshd", "/usr/sbin/sshd", "-D", "-e", "-f", dir+"/sshd_config")
	}
	ansible := func(config string) func() fleettest.Result {
		return func() fleettest.Result {
			return op.Exec("env", "LC_ALL=C.UTF-8", "ANSIBLE_CONFIG="+dir+"/"+config, "ansible", "all", "-m", "command", "-a", "true")
		}
	}
	ways := []struct {
		name string
		run  func() fleettest.Result
		took []time.Duration
	}{
		{name: "jorc", run: func() fleettest.Result { return f.Jorc("cluster", "run", "nothing", "--wait") }},
		{name: "ansible", run: ansible("each.cfg")},
		{name: "ansible-open", run: ansible("open.cfg")},
		{name: "ssh", run: func() fleettest.Result {
			return op.Exec("xargs", "-a", dir+"/inventory", "-P", "5", "-I{}", "ssh", "-F", dir+"/ssh_config", "{}", "true")
		}},
	}
	f.Eventually("sshd on each host", func(ctx context.Context) error {
		if r := ways[3].run(); r.Code != 0 {
			return fmt.Errorf("ssh exited %d: %s", r.Code, r.Stderr)
		}
		return nil
	})
	healthy(b, f)
	for _, w := range ways { // opens connections, reads modules
		w.run().OK()
	}
	for b.Loop() {
		for i := range ways {
			w := &ways[i]
			begin := time.Now()
			r := w.run()
			w.took = append(w.took, time.Since(begin))
			r.OK()
		}
	}
	median := func(took []time.Duration) float64 {
		slices.Sort(took)
		return float64(took[len(took)/2].Microseconds()) / 1000
	}
	own := median(ways[0].took)
	for _, w := range ways {
		b.ReportMetric(median(w.took), w.name+"-ms")
		if w.name != "jorc" {
			b.ReportMetric(median(w.took)/own, w.name+"/jorc")
		}
	}
}

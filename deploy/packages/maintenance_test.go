//go:build packages

package packages_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestMaintenance reboots a booted Debian by `jorc maintenance reboot`, and once more as Zincati does, by FleetLock: each time
// the host is in maintenance before, and its lease ends after, when its checks pass.
func TestMaintenance(t *testing.T) {
	m := newMachine(t)
	m.run("useradd", "--system", "zincati")
	m.recipe("restart.hcl", "\nfleetlock { users = [\"zincati\"] }\n")
	m.write("/root/web.json", `{"service": {"name": "web", "port": 80, "check": {"tcp": "127.0.0.1:80", "interval": "1s", "status": "passing"}}}`)
	m.run("systemctl", "start", "nginx")
	m.run("systemctl", "disable", "--quiet", "nginx") // after the reboot the lease lasts until it is started, however slow the test is
	m.run("consul", "services", "register", "/root/web.json")
	before := m.bootID()
	m.run("jorc", "maintenance", "reboot", "--reason", "kernel", "--drain", "2s")
	m = m.rebooted()
	out := m.eventually("the lease after the reboot", contains("rebooted\tyes"), "jorc", "maintenance", "show", "-o", "plain")
	if !strings.Contains(out, "reason\tkernel") {
		t.Errorf("the lease is %s", out)
	}
	m.run("systemctl", "enable", "--quiet", "--now", "nginx")
	m.eventually("the end of the lease", contains("state\tnone"), "jorc", "maintenance", "show", "-o", "plain")
	m.backInService(before)

	before = m.bootID()
	if status, answer := m.fleetLock("nobody", "pre-reboot"); status != http.StatusForbidden {
		t.Errorf("pre-reboot of another user: %s", answer)
	}
	m.zincati("pre-reboot")
	if out := m.run("consul", "maint"); !strings.Contains(out, "FleetLock, group default") {
		t.Errorf("maintenance before the reboot: %q", out)
	}
	m.run("systemctl", "reboot")
	m = m.rebooted()
	m.eventually("the lease after the reboot", contains("id\tc988d2509fdf5cdcbed39037c56406fb"), "jorc", "maintenance", "show", "-o", "plain")
	m.zincati("steady-state")
	m.backInService(before)
	if out := m.run("jorc", "maintenance", "show", "-o", "plain"); !strings.Contains(out, "state\tnone") {
		t.Errorf("after steady-state the lease is %s", out)
	}
}

// zincati asks the agent as Zincati does: again, until the answer is yes.
func (m *machine) zincati(path string) {
	m.t.Helper()
	consultest.Eventually(m.t, path, func(context.Context) error {
		status, answer := m.fleetLock("zincati", path)
		if status == http.StatusOK {
			return nil
		}
		if status != http.StatusServiceUnavailable {
			m.t.Fatalf("%s: %s", path, answer)
		}
		return errors.New(answer)
	})
}

// fleetLock asks the agent as a user of the machine, and returns the status and all of the answer.
func (m *machine) fleetLock(user, path string) (status int, answer string) {
	m.t.Helper()
	body := `{"client_params":{"id":"c988d2509fdf5cdcbed39037c56406fb","group":"default"}}`
	request := fmt.Sprintf("POST /fleetlock/v1/%s HTTP/1.0\r\nfleet-lock-protocol: true\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	// An agent that refuses without reading the body may reset the connection after its answer.
	answer = m.run("runuser", "-u", user, "--", "bash", "-c", `exec 3<>/dev/tcp/127.0.0.1/8520 && printf %s "$1" >&3 && { cat <&3 || true; }`, "bash", request)
	if _, err := fmt.Sscanf(answer, "HTTP/1.0 %d", &status); err != nil {
		m.t.Fatalf("%s: %v: %q", path, err, answer)
	}
	return status, answer
}

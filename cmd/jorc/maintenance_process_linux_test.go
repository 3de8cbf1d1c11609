package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

const leased = `
http { address = "127.0.0.1:0" }
member {}
`

const leasedBoss = leased + `
orchestrator {
  enabled  = true
  interval = "1s"
}
`

// wantMaintenance waits until Consul says that the machine is in maintenance, or not.
func (m *machine) wantMaintenance(want bool) {
	m.t.Helper()
	m.eventually(fmt.Sprintf("maintenance %v", want), func() error {
		checks, err := m.client.AgentChecks(m.t.Context(), "")
		if err != nil {
			return err
		}
		if _, on := checks["_node_maintenance"]; on != want {
			return fmt.Errorf("it is %v", on)
		}
		return nil
	})
}

// maintained starts an agent, and waits until it is a member that `jorc maintenance` can ask.
func (m *machine) maintained() *process {
	m.t.Helper()
	d := m.agent()
	d.wantNotified("READY=1")
	m.eventually("the host to take part", func() error {
		got := m.run("maintenance", "end", "--id", "none")
		if got.code != 0 {
			return fmt.Errorf("%+v", got)
		}
		return lacks(d.said.String(), "the member's record was written")
	})
	return d
}

// TestMaintenanceProcess: `jorc maintenance run` of a real agent outlives that agent's kill -9, and is refused at once where no
// wait can help.
func TestMaintenanceProcess(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), leased)
	refused := func(why string) {
		t.Helper()
		for _, args := range [][]string{{"begin"}, {"reboot"}, {"run", "--", "true"}} {
			if got := m.run(append([]string{"maintenance"}, args...)...); got.code != exitStopped || lacks(got.stderr, why) != nil {
				t.Errorf("%q: %+v, want exit 6 and %s", args, got, why)
			}
		}
	}
	first := m.maintained()
	m.eventually("an answer about the cluster", func() error {
		return lacks(m.run("maintenance", "begin").stderr, "no orchestrator runs")
	})
	refused("no orchestrator runs")
	m.configure(leasedBoss)
	first.signal(syscall.SIGTERM)
	first.wantExit(0)
	first = m.agent()
	m.eventually("an orchestrator", func() error {
		if got := m.run("cluster", "orchestrate"); got.code != 0 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	if got := m.run("cluster", "pause", "--reason", "a test"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	m.eventually("a pause", func() error {
		if got := m.run("maintenance", "begin", "--timeout", "0"); got.code != exitStopped || lacks(got.stderr, "the cluster is paused") != nil {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	refused("a test")
	if got := m.run("cluster", "resume"); got.code != 0 {
		t.Fatalf("%+v", got)
	}

	command := m.start("maintenance", "run", "--reason", "patch", "--", "sh", "-c", "echo $$ >"+m.path("new")+"; mv "+m.path("new")+" "+m.path("pid")+"; while ! test -e "+m.path("go")+"; do sleep 0.05; done; echo done")
	m.eventually("the command", func() error { return lacks(m.read("pid"), "\n") })
	m.wantMaintenance(true)
	wantShown := func(texts ...string) {
		t.Helper()
		got := m.run("maintenance", "show", "-o", "plain")
		for _, text := range texts {
			if got.code != 0 || lacks(got.stdout, text) != nil {
				t.Errorf("show: %+v, want %s", got, text)
			}
		}
	}
	wantShown("state\tready\n", "reason\tpatch\n")
	first.signal(syscall.SIGKILL)
	first.wantExit(-1)
	command.wantSaid("waiting for the agent: ")
	second := m.agent()
	m.eventually("the next agent to answer", func() error {
		got := m.run("maintenance", "show", "-o", "plain")
		if got.code == 0 && lacks(got.stdout, "state\tready\n") != nil {
			t.Errorf("show: %+v, want ready, also before the agent takes part in the cluster", got)
		}
		return lacks(got.stdout, "state\t")
	})
	second.wantSaid("a command asks to take this host out of service")
	wantShown("state\tready\n", "reason\tpatch\n")
	m.wantMaintenance(true)
	var pid int
	if n, err := fmt.Sscan(m.read("pid"), &pid); n != 1 || err != nil || !consultest.Exists(pid) {
		t.Errorf("the command %q has ended: %v", m.read("pid"), err)
	}
	m.write("go", "")
	m.wantMaintenance(false)
	command.wantSaid("done\n")
	command.wantSaid("the checks of this host have to pass for 30s")
	wantShown("state\tending\n")
}

// TestFleetLockProcess: a program of a host asks its agent by FleetLock, and another host waits for its place meanwhile.
func TestFleetLockProcess(t *testing.T) {
	t.Parallel()
	servers := consultest.StartCluster(t, 2)
	boss := newMachine(t, servers[0], leasedBoss)
	host := newMachine(t, servers[1], leased+fmt.Sprintf("fleetlock { users = [\"%d\"] }\n", os.Getuid()))
	boss.maintained()
	d := host.maintained()
	_ = d.get("/healthz")
	_, rest, _ := strings.Cut(d.said.String(), "the status API listens: address=")
	address, _, _ := strings.Cut(rest, "\n")
	post := func(ctx context.Context, path, id string) (int, string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/fleetlock/v1/"+path, bytes.NewReader([]byte(`{"client_params":{"id":"`+id+`","group":"default"}}`)))
		if err != nil {
			return 0, "", err
		}
		r.Header.Set("fleet-lock-protocol", "true")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body), err
	}
	wanted := func(path string, want int) {
		t.Helper()
		if code, body, err := post(t.Context(), path, "zincati"); code != want || err != nil {
			t.Errorf("%s: %d %s, %v, want %d", path, code, body, err, want)
		}
	}
	wanted("steady-state", http.StatusOK) // without a lease
	host.eventually("a yes", func() error {
		if code, body, err := post(t.Context(), "pre-reboot", "zincati"); code != http.StatusOK {
			return fmt.Errorf("%d %s, %w", code, body, err)
		}
		return nil
	})
	host.wantMaintenance(true)
	wanted("pre-reboot", http.StatusOK) // again
	for _, timeout := range []string{"1s", "0"} {
		if got := boss.run("maintenance", "begin", "--timeout", timeout); got.code != exitTimeout || lacks(got.stderr, servers[1].Node) != nil {
			t.Errorf("begin --timeout %s of another host: %+v", timeout, got)
		}
	}
	boss.wantMaintenance(false)
	if got := host.run("maintenance", "show", "-o", "plain"); lacks(got.stdout, "id\tzincati\n") != nil || lacks(got.stdout, "reason\tFleetLock, group default\n") != nil {
		t.Errorf("show: %+v", got)
	}
	if got := host.run("maintenance", "end", "--id", "jorc maintenance"); got.code != exitStopped {
		t.Errorf("end of another lease: %+v", got)
	}
	// The host is back in service at once, but the answer is "no" until its checks have passed for 30 s.
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		code, body, err := post(ctx, "steady-state", "zincati")
		if err == nil {
			err = fmt.Errorf("%d %s", code, body)
		}
		answered <- err
	}()
	host.wantMaintenance(false)
	cancel()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("steady-state: %v", err)
	}
	if got := boss.run("maintenance", "begin", "--timeout", "0"); got.code != exitTimeout {
		t.Errorf("begin of another host while this one settles: %+v", got)
	}
}

//go:build linux

package fleettest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/web"
)

// Host is a machine with a Consul client and a jorc agent.
type Host struct {
	*Machine

	spec       HostSpec
	agentToken string // Consul's own
	jorcSecret string // jorc's

	mu   sync.Mutex
	jorc string // the program
}

func (f *Fleet) newHost(spec HostSpec, number int) *Host {
	f.t.Helper()
	h := &Host{Machine: f.machine(spec.Name, number), spec: spec, agentToken: newUUID(), jorcSecret: newUUID(), jorc: f.jorc}
	h.owner = h
	return h
}

func (h *Host) tokenFile() string { return filepath.Join(h.Dir, "token") }

// Path is a file in the host's directory.
func (h *Host) Path(name ...string) string {
	return filepath.Join(append([]string{h.Dir}, name...)...)
}

// agentConfig is what every agent has.
const agentConfig = `
state_dir = "$DIR/state"
http { address = "127.0.0.1:8520" }
consul {
  address     = "https://127.0.0.1:8501"
  token_file  = "$DIR/token"
  ca_file     = "$CA"
  client_cert = "$DIR/cert.pem"
  client_key  = "$DIR/key.pem"
}
`

// bootJorc starts the agent, for the first time.
func (h *Host) bootJorc() error {
	conf := agentConfig + h.spec.Config
	if h.spec.Orchestrator {
		conf += fmt.Sprintf("\norchestrator { interval = %q }\n", cmp.Or(h.spec.Interval, "2s"))
	}
	if err := os.WriteFile(h.Path("jorc.hcl"), []byte(h.fill(conf)), 0o600); err != nil {
		return err
	}
	args := []string{h.program(), "agent", "--config", h.Path("jorc.hcl")}
	if h.spec.Boots {
		const boot = `cat /proc/sys/kernel/random/uuid >"$1" && mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"`
		args = append([]string{"unshare", "--mount", "/bin/sh", "-c", boot, "sh", h.Path("boot_id")}, args...)
	}
	_, err := h.process("jorc", false, nil, args...)
	return err
}

// fill replaces what HostSpec.Config may name.
func (h *Host) fill(text string) string {
	return strings.NewReplacer("$DIR", h.Dir, "$IP", h.IP, "$NAME", h.Name, "$CA", h.fleet.tls.File, "$SELF", Self(), "$TEMPLATES", filepath.Join(consultest.Root(h.fleet.t), "templates"), "$JORC", h.program()).Replace(text)
}

// Run starts a program that is started again whenever it ends, as systemd
// would, also after a reboot.
func (h *Host) Run(name string, args ...string) {
	h.fleet.t.Helper()
	for i := range args {
		args[i] = h.fill(args[i])
	}
	_, err := h.process(name, true, nil, args...)
	h.fleet.must("on "+h.Name, err)
}

// Exec runs a command on the host, with what jorc's command line needs in the
// environment.
func (h *Host) Exec(args ...string) Result {
	h.fleet.t.Helper()
	return h.exec(h.environ(), args...)
}

// Jorc runs jorc's command line on the host with the host's token.
func (h *Host) Jorc(args ...string) Result {
	h.fleet.t.Helper()
	return h.Exec(append([]string{h.program()}, args...)...)
}

// Jorc runs jorc's command line as the operator.
func (f *Fleet) Jorc(args ...string) Result {
	f.t.Helper()
	return f.Operator.Jorc(args...)
}

func (h *Host) environ() []string {
	return []string{
		"CONSUL_HTTP_ADDR=https://127.0.0.1:8501", "CONSUL_CACERT=" + h.fleet.tls.File, "CONSUL_HTTP_TOKEN_FILE=" + h.tokenFile(),
		"CONSUL_CLIENT_CERT=" + h.Path("cert.pem"), "CONSUL_CLIENT_KEY=" + h.Path("key.pem"), "JORC_STATE_DIR=" + h.Path("state"), consultest.NoConfig,
	}
}

// program is jorc as the host has it.
func (h *Host) program() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.jorc
}

// Upgrade kills the agent and starts it again from the program jorc, which is also the host's command line from
// then on.
func (h *Host) Upgrade(jorc string) {
	h.fleet.t.Helper()
	old := h.program()
	p := h.agent()
	p.unwanted()
	h.fleet.must("kill the agent on "+h.Name, p.signal(syscall.SIGKILL))
	p.ended()
	h.mu.Lock()
	h.jorc = jorc
	h.mu.Unlock()
	for i := range p.args {
		if p.args[i] == old {
			p.args[i] = jorc
		}
	}
	h.fleet.must("start the agent on "+h.Name, p.start())
}

// Kill9All kills all processes on the host, as a power cut does.
func (h *Host) Kill9All() { h.killAll() }

// Boot starts what ran on a host before Kill9All.
func (h *Host) Boot() {
	h.fleet.t.Helper()
	h.fleet.must("boot", h.startAll())
}

// Reboot is Kill9All and Boot; the host's files stay.
func (h *Host) Reboot() {
	h.fleet.t.Helper()
	h.Kill9All()
	h.Boot()
}

// FreezeAgent stops jorc's agent without ending it.
func (h *Host) FreezeAgent() { h.signalAgent(syscall.SIGSTOP) }

// ThawAgent lets a frozen agent continue.
func (h *Host) ThawAgent() {
	h.fleet.Observer.terms.excuse(h.Name)
	h.signalAgent(syscall.SIGCONT)
}

func (h *Host) signalAgent(s syscall.Signal) {
	h.fleet.t.Helper()
	h.fleet.must(fmt.Sprintf("signal %v to the agent on %s", s, h.Name), h.agent().signal(s))
}

// agent is the process of jorc's agent.
func (h *Host) agent() *Process {
	h.fleet.t.Helper()
	all := h.programs()
	i := slices.IndexFunc(all, func(p *Process) bool { return p.name == "jorc" })
	if i < 0 {
		h.fleet.t.Fatalf("fleettest: %s has no agent", h.Name)
	}
	return all[i]
}

// Status reads the agent's status from within the host: partitions do not affect it.
func (h *Host) Status(ctx context.Context) (s web.Status, err error) {
	return s, h.fleet.ask(ctx, h.Machine, "http://127.0.0.1:8520", http.MethodGet, "/v1/status", "", nil, &s)
}

// RawStatus is Status as JSON, by the names of its fields.
func (h *Host) RawStatus(ctx context.Context) (s map[string]json.RawMessage, err error) {
	return s, h.fleet.ask(ctx, h.Machine, "http://127.0.0.1:8520", http.MethodGet, "/v1/status", "", nil, &s)
}

// WaitReady returns when the agent has registered, rendered and converged.
func (h *Host) WaitReady() {
	h.fleet.t.Helper()
	h.fleet.Eventually(h.Name+"'s agent to be ready", func(ctx context.Context) error {
		s, err := h.Status(ctx)
		if err == nil && !s.Ready {
			err = fmt.Errorf("it is not: %s", strings.Join(s.NotReady, "; "))
		}
		return err
	})
}

// Maintenance puts the host into Consul's maintenance mode, as an operator
// does, or ends that.
func (h *Host) Maintenance(on bool) {
	h.fleet.t.Helper()
	path := fmt.Sprintf("/v1/agent/maintenance?enable=%v&reason=test", on)
	h.fleet.must("maintenance of "+h.Name, h.fleet.ask(context.Background(), h.Machine, "https://127.0.0.1:8501", http.MethodPut, path, h.fleet.acl.root, nil, nil))
}

// File returns the content of a file on the host; empty if it does not exist.
func (h *Host) File(name string) string {
	h.fleet.t.Helper()
	data, err := os.ReadFile(h.Path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.fleet.t.Fatalf("fleettest: %v", err)
	}
	return string(data)
}

// Write writes a file on the host, before its programs read it.
func (h *Host) Write(name, content string) {
	h.fleet.t.Helper()
	if err := os.WriteFile(h.Path(name), []byte(h.fill(content)), 0o644); err != nil {
		h.fleet.t.Fatalf("fleettest: %v", err)
	}
}

// Remove removes a file of the host, if there is one.
func (h *Host) Remove(name string) {
	h.fleet.t.Helper()
	if err := os.Remove(h.Path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		h.fleet.t.Fatalf("fleettest: %v", err)
	}
}

// Self is the test's own binary: see Main.
func Self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

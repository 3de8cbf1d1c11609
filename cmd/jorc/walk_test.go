package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// furnished is a host that is configured for cluster prd below the prefix site. The
// cluster has the host itself and app-9 as members, the role web, the run r1 and
// the slot group reload; the host has the workflow converge.
type furnished struct {
	*configured
	server *consultest.Server
	proxy  *consultest.Proxy
	dir    string

	mu       sync.Mutex
	requests int
	keys     map[string]bool // that were asked for, or of which a transaction was made
}

const furnishing = `
cluster      = "prd"
prefix       = "site"
state_dir    = "DIR/state"
version_file = "DIR/version"
consul {
  address = "CONSUL"
}
dns {
  address = "DNS"
}
workflow "converge" {
  task "t" {
    command = ["true"]
  }
}
`

func furnish(t *testing.T) *furnished {
	t.Helper()
	s := consultest.Start(t)
	h := &furnished{server: s, proxy: s.Proxy(), dir: t.TempDir(), keys: map[string]bool{}}
	conf := strings.NewReplacer("DIR", h.dir, "CONSUL", h.proxy.Addr, "DNS", s.DNSAddr).Replace(furnishing)
	h.configured = newConfigured(t, conf, map[string]string{"USER": "ann", "TMPDIR": h.dir})
	h.proxy.Do(h.record)
	h.file("services.json", `{"service": {"name": "web", "port": 80}}`)
	h.file("value", "1")
	h.file("schema.json", `{"type": "integer"}`)
	h.file("patch.json", `[{"op": "add", "path": "/params/patched", "value": 1}]`)
	h.file("params.json", `{"cluster/profile": "prd", "k": 1}`)
	h.file("version", "v1\n")
	h.succeed("cluster", "init", "prd")
	h.succeed("cluster", "init", "other")
	h.succeed("cluster", "join", "--role", "db")
	h.succeed("cluster", "join", "--node", "app-9", "--role", "web")
	h.succeed("status", "set", "config", "success", "--host", "app-9")
	h.succeed("cluster", "profile", "set", "k", "1")
	h.succeed("cluster", "meta", "set", "icon", "db")
	h.succeed("cluster", "profile", "schema", "set", "checked", filepath.Join(h.dir, "schema.json"))
	h.succeed("cluster", "run", "converge", "--id", "r1", "--needs-approval")
	h.succeed("update", "trigger", "v1", "--max-parallel", "1")
	h.succeed("cluster", "lock", "reload", "--max", "2", "--", "true")
	h.succeed("service", "register", filepath.Join(h.dir, "services.json"))
	wantInCatalog(t, s, "web")
	h.succeed("workflow", "run", "converge", "--id", "j1")
	archive := h.succeed("cluster", "export")
	h.file("archive.json", archive)
	return h
}

func (h *furnished) file(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// line splits a command line; DIR in it is the host's directory, CONF that of its
// configuration, NODE its name.
func (h *furnished) line(text string) []string {
	return strings.Fields(strings.NewReplacer("DIR", h.dir, "CONF", h.configured.dir, "NODE", h.server.Node).Replace(text))
}

// record notes the keys of a request.
func (h *furnished) record(r *http.Request) consultest.Fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests++
	if key, ok := strings.CutPrefix(r.URL.Path, "/v1/kv/"); ok {
		h.keys[key] = true
	}
	if r.URL.Path != "/v1/txn" || r.Body == nil {
		return consultest.Fault{}
	}
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var ops []struct{ KV struct{ Key string } }
	if err != nil || json.Unmarshal(body, &ops) != nil {
		h.keys["a transaction that cannot be read"] = true
	}
	for _, op := range ops {
		h.keys[op.KV.Key] = true
	}
	return consultest.Fault{}
}

// asked returns the keys that were asked for since the last call.
func (h *furnished) asked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	keys := slices.Sorted(maps.Keys(h.keys))
	h.keys = map[string]bool{}
	return keys
}

// stored returns all of KV.
func (h *furnished) stored() map[string]uint64 {
	h.t.Helper()
	all, _, err := h.server.Client().KVList(h.t.Context(), "", consul.Query{})
	if err != nil {
		h.t.Fatal(err)
	}
	stored := map[string]uint64{}
	for _, kv := range all {
		stored[kv.Key] = kv.ModifyIndex
	}
	return stored
}

// walked is how a command is tried out on a furnished host.
type walked struct {
	path string // of the command
	// line is what works; empty: the command is not tried out.
	line string
	// local: it acts on no cluster, or on all.
	local bool
	// endless: line ends with a signal, or when it cannot write.
	endless bool
	// code is what line exits with.
	code int
	// wrong are lines with names of hosts, roles, groups, runs and workflows that do not exist.
	wrong []string
	// gone is a line with the name of a host that does not exist, which is what the
	// command wants.
	gone string
}

// walks has every command of the tree once; commands that remove something come last.
var walks = []walked{
	{path: "agent", local: true},
	{path: "check_puppet", line: "check_puppet", wrong: []string{"check_puppet ap-9"}},
	{path: "check_single_version", line: "check_single_version v1 -v", code: 1},
	{path: "cluster drpcli", local: true},
	{path: "completion bash", line: "completion bash", local: true},
	{path: "completion fish", line: "completion fish", local: true},
	{path: "completion zsh", line: "completion zsh", local: true},
	{path: "config validate", line: "config validate CONF/agent.hcl -o json", local: true},
	{path: "config explain", line: "config explain template.wait -o json", local: true},
	{path: "config schema", local: true},
	{path: "template test", local: true},
	{path: "template record"},
	{path: "migrate consul-template", line: "migrate consul-template -- -once", local: true, code: exitFailed},
	{path: "migrate envconsul", line: "migrate envconsul -- -once", local: true, code: exitFailed},
	{path: "current_version", line: "current_version"},
	{path: "debug_timeout", local: true},
	{path: "debug"},
	{path: "dev", local: true},
	{path: "ui"},
	{path: "enable_puppet", local: true},
	{path: "host_data", local: true},
	{path: "manage_config", local: true},
	{path: "set_config", local: true},
	{path: "upgrade_status", local: true},
	{path: "doctor", line: "doctor", code: -1, local: true},
	{path: "get_failures", line: "get_failures"},
	{path: "health", line: "health -o json", local: true},
	{path: "hosts_at_version", line: "hosts_at_version v1"},
	{path: "local_health", line: "local_health -o json"},
	{path: "local_version", line: "local_version", local: true},
	{path: "maintenance begin", line: "maintenance begin", local: true, code: exitFailed},
	{path: "maintenance end", line: "maintenance end", local: true, code: exitFailed},
	{path: "maintenance run", line: "maintenance run -- true", local: true, code: exitFailed},
	{path: "maintenance reboot", line: "maintenance reboot", local: true, code: exitFailed},
	{path: "maintenance show", line: "maintenance show", local: true, code: exitFailed},
	{path: "man", line: "man", local: true},
	{path: "pending_update", line: "pending_update", code: 1},
	{path: "ping", line: "ping", local: true},
	{path: "publish_service", line: "publish_service 10.0.0.1 pub", local: true},
	{path: "cache_services", line: "cache_services --file DIR/services.yaml", local: true},
	{path: "render", line: "render --dry-run", local: true},
	{path: "running_versions", line: "running_versions"},
	{path: "service register", line: "service register DIR/services.json", local: true},
	{path: "service list", line: "service list", local: true, wrong: []string{"service list --node NODEx"}},
	{path: "service resolve", line: "service resolve web", local: true, wrong: []string{"service resolve wbe"}},
	{path: "service export", line: "service export --format json", local: true},
	{path: "service deregister", line: "service deregister web", local: true},
	{path: "stage list", line: "stage list"},
	{path: "stage show", line: "stage show pool", code: 1},
	{path: "stage approve", line: "stage approve pool", code: 1},
	{path: "stage resume", line: "stage resume pool", code: 1},
	{path: "status set", line: "status set config success --host app-9", wrong: []string{"status set config failed --host ap-9"}},
	{path: "status list", line: "status list app-9", wrong: []string{"status list ap-9"}},
	{path: "status failures", line: "status failures -o json"},
	{path: "status unaccounted", line: "status unaccounted -o json"},
	{path: "status repair", line: "status repair -o json"},
	{path: "update trigger", line: "update trigger v2 --max-parallel 1", wrong: []string{"update trigger v3 --order wbe,db"}},
	{path: "trigger_update", line: "trigger_update v2"},
	{path: "update current", line: "update current"},
	{path: "update pending", line: "update pending"},
	{path: "update local", line: "update local", local: true},
	{path: "update report", line: "update report --host app-9 --version v1", wrong: []string{"update report --host ap-9 --version v1"}},
	{path: "update_own_info", line: "update_own_info --hostname app-9 --version v1", wrong: []string{"update_own_info --hostname ap-9 --version v1"}},
	{path: "update_status", line: "update_status puppet success --hostname app-9", wrong: []string{"update_status puppet success --hostname ap-9"}},
	{path: "update_own_status", line: "update_own_status puppet success", wrong: []string{"update_own_status puppet success --hostname ap-9"}},
	{path: "update running", line: "update running"},
	{path: "update hosts", line: "update hosts v1"},
	{path: "update verify", line: "update verify v9 app-9", code: 1, wrong: []string{"update verify v1 ap-9"}},
	{path: "verify_hosts", line: "verify_hosts v1 app-9", wrong: []string{"verify_hosts v1 ap-9"}},
	{path: "update single", line: "update single v2", code: 1},
	{path: "update show", line: "update show"},
	{path: "update history", line: "update history", wrong: []string{"update history v9"}},
	{path: "update why", line: "update why app-9", code: 1, wrong: []string{"update why ap-9"}},
	{path: "update retry", line: "update retry app-9", wrong: []string{"update retry ap-9"}},
	{path: "update give-up", line: "update give-up app-9", code: 1, wrong: []string{"update give-up ap-9"}},
	{path: "update pause", line: "update pause"},
	{path: "update resume", line: "update resume"},
	{path: "update promote", line: "update promote", code: -1},
	{path: "update rollback", line: "update rollback --dry-run", code: -1, wrong: []string{"update rollback --to a/b"}},
	{path: "change list", line: "change list --kind version"},
	{path: "change show", line: "change show version.v2", wrong: []string{"change show version.v3"}},
	{path: "change why", line: "change why app-9", code: 1, wrong: []string{"change why ap-9"}},
	{path: "change wait", line: "change wait v2 --timeout 1ms", code: 124, wrong: []string{"change wait v3"}},
	{path: "change pause", line: "change pause v2", wrong: []string{"change pause v3"}},
	{path: "change resume", line: "change resume v2", wrong: []string{"change resume v3"}},
	{path: "change approve", line: "change approve v2", wrong: []string{"change approve v3"}},
	{path: "change retry", line: "change retry v2 app-9", wrong: []string{"change retry version. ap-9"}},
	{path: "change give-up", line: "change give-up app-9", code: 1, wrong: []string{"change give-up ap-9"}},
	{path: "change history", line: "change history", wrong: []string{"change history v9"}},
	{path: "change logs", line: "change logs v2", code: exitUsage},
	{path: "update wait", line: "update wait --timeout 1ms", code: 124},
	{path: "change cancel", line: "change cancel v2", wrong: []string{"change cancel v3"}},
	{path: "update abort", line: "update abort"},
	{path: "version", line: "version", local: true},
	{path: "wait", local: true},
	{path: "workflow list", line: "workflow list", local: true},
	{path: "workflow run", line: "workflow run converge --id j1", wrong: []string{"workflow run convegre"}, local: true},
	{path: "workflow jobs", line: "workflow jobs", local: true},
	{path: "workflow schedules", line: "workflow schedules", local: true},
	{path: "workflow logs", line: "workflow logs j1 -o json", wrong: []string{"workflow logs j2"}, local: true},

	{path: "cluster list", line: "cluster list", local: true},
	{path: "cluster init", line: "cluster init prd", local: true},
	{path: "cluster import", line: "cluster import DIR/archive.json --replace", local: true},
	{path: "cluster bootstrap-acl", line: "cluster bootstrap-acl", local: true},
	{path: "cluster show", line: "cluster show", wrong: []string{"cluster show prdd"}},
	{path: "cluster export", line: "cluster export", wrong: []string{"cluster export prdd"}},
	{path: "cluster join", line: "cluster join --zone z"},
	{path: "cluster members", line: "cluster members", wrong: []string{"cluster members --role wbe"}},
	{path: "cluster leader", line: "cluster leader --count 1", code: -1},
	{path: "cluster pause", line: "cluster pause"},
	{path: "cluster resume", line: "cluster resume"},
	{path: "cluster hold", line: "cluster hold --role web", wrong: []string{"cluster hold --role wbe", "cluster hold --node ap-9"}},
	{path: "cluster unhold", line: "cluster unhold --role web", wrong: []string{"cluster unhold --role wbe", "cluster unhold --node ap-9"}},
	{path: "cluster observe-only on", line: "cluster observe-only on"},
	{path: "cluster observe-only off", line: "cluster observe-only off"},
	{path: "cluster budget set", line: "cluster budget set --max-out 50% --role web=1 --zones 2", wrong: []string{"cluster budget set --role wbe=1"}},
	{path: "cluster budget show", line: "cluster budget show -o json"},
	{path: "cluster budget clear", line: "cluster budget clear"},
	{path: "cluster freeze add", line: "cluster freeze add --weekly 08:00-09:00 --role web --reason weekend", wrong: []string{"cluster freeze add --weekly 08:00-09:00 --role wbe --reason x"}},
	{path: "cluster freeze list", line: "cluster freeze list -o json"},
	{path: "cluster freeze remove", line: "cluster freeze remove 0000"},
	{path: "cluster attention", line: "cluster attention -o json", code: 1},
	{path: "cluster files", line: "cluster files"},
	{path: "cluster deps", line: "cluster deps -o json"},
	{path: "cluster profile show", line: "cluster profile show"},
	{path: "cluster profile edit", line: "cluster profile edit", code: -1},
	{path: "cluster profile get", line: "cluster profile get k", wrong: []string{"cluster profile get k --role wbe", "cluster profile get k --node ap-9", "cluster profile get k --effective --node ap-9"}},
	{path: "cluster profile set", line: "cluster profile set k 1", wrong: []string{"cluster profile set k 1 --role wbe", "cluster profile set k 1 --node ap-9"}},
	{path: "cluster profile add", line: "cluster profile add added 1", code: -1, wrong: []string{"cluster profile add k 1 --role wbe", "cluster profile add k 1 --node ap-9"}},
	{path: "cluster profile remove", line: "cluster profile remove added", wrong: []string{"cluster profile remove k --role wbe", "cluster profile remove k --node ap-9"}},
	{path: "cluster profile params", line: "cluster profile params", wrong: []string{"cluster profile params --role wbe", "cluster profile params DIR/params.json --role wbe"}},
	{path: "cluster profile patch", line: "cluster profile patch DIR/patch.json"},
	{path: "cluster profile schema set", line: "cluster profile schema set checked DIR/schema.json"},
	{path: "cluster profile schema get", line: "cluster profile schema get checked"},
	{path: "cluster profile schema remove", line: "cluster profile schema remove unchecked"},
	{path: "cluster profile history", line: "cluster profile history k"},
	{path: "cluster profile revert", line: "cluster profile revert 1"},
	{path: "cluster profile token", line: "cluster profile token", code: 1},
	{path: "cluster profile watch", line: "cluster profile watch", endless: true},
	{path: "cluster meta get", line: "cluster meta get icon", wrong: []string{"cluster meta get --node ap-9"}},
	{path: "cluster meta set", line: "cluster meta set icon x", wrong: []string{"cluster meta set icon x --node ap-9"}},
	{path: "cluster meta remove", line: "cluster meta remove none", wrong: []string{"cluster meta remove icon --node ap-9"}},
	{path: "cluster run", line: "cluster run converge", wrong: []string{"cluster run converge --role wbe"}},
	{path: "cluster runs", line: "cluster runs", wrong: []string{"cluster runs r2"}},
	{path: "cluster approve", line: "cluster approve r1", wrong: []string{"cluster approve r2"}},
	{path: "cluster cancel", line: "cluster cancel r1", wrong: []string{"cluster cancel r2"}},
	{path: "cluster logs", line: "cluster logs r1 -o json", wrong: []string{"cluster logs r2", "cluster logs r1 ap-9"}},
	{path: "cluster wait", line: "cluster wait --for members=2 -o json --timeout 1m", wrong: []string{"cluster wait --for run=r2"}},
	{path: "cluster orchestrate", line: "cluster orchestrate --timeout 1ms", code: -1},
	{path: "cluster view", line: "cluster view", code: 1},
	{path: "cluster report", line: "cluster report"},
	{path: "cluster events", line: "cluster events"},
	{path: "cluster audit", line: "cluster audit"},
	{path: "cluster slots", line: "cluster slots reload", wrong: []string{"cluster slots relaod"}},
	{path: "cluster lock", line: "cluster lock reload -- true"},
	{path: "cluster unlock", line: "cluster unlock reload app-9", wrong: []string{"cluster unlock relaod app-9"}, gone: "cluster unlock reload ap-9"},
	{path: "cluster leave", line: "cluster leave --node app-9", gone: "cluster leave --node ap-9"},
	{path: "status decommission", line: "status decommission app-9 --yes", gone: "status decommission ap-9"},
	{path: "cluster delete", line: "cluster delete other --yes", local: true, wrong: []string{"cluster delete prdd --yes"}},
}

// TestWalksAreComplete: every command of the tree is tried out below.
func TestWalksAreComplete(t *testing.T) {
	t.Parallel()
	missing := map[string]bool{}
	for path, c := range tree(t) {
		if path != "" && len(c.Subcommands) == 0 {
			missing[path] = true
		}
	}
	for _, w := range walks {
		if !missing[w.path] {
			t.Errorf("jorc %s does not exist, or is in the table twice", w.path)
		}
		delete(missing, w.path)
	}
	for path := range missing {
		t.Errorf("jorc %s is missing in the table", path)
	}
}

// TestCommandsActOnConfiguredCluster: on a host that is configured for a cluster no
// command reads or writes keys of another one.
func TestCommandsActOnConfiguredCluster(t *testing.T) {
	t.Parallel()
	h := furnish(t)
	h.env["EDITOR"] = "true"
	h.asked()
	for _, w := range walks {
		if w.line == "" || w.endless {
			continue
		}
		got := h.jorc(h.line(w.line)...)
		if got.code != w.code && w.code >= 0 {
			t.Errorf("jorc %s: %+v, want exit %d", w.line, got, w.code)
		}
		keys := h.asked()
		for _, key := range keys {
			if w.path != "cluster list" && w.path != "cluster delete" && !strings.HasPrefix(key, "site/prd/") && key != "site/prd" {
				t.Errorf("jorc %s asks for %q", w.line, key)
			}
		}
		if len(keys) == 0 && !w.local && w.path != "cluster profile token" { // it is refused before, without ACLs
			t.Errorf("jorc %s asks for no key", w.line)
		}
	}
}

// TestNamesThatDoNotExist: a command with the name of a cluster, host, role, group, run
// or workflow that does not exist exits 1, says what was close, and writes nothing.
func TestNamesThatDoNotExist(t *testing.T) {
	t.Parallel()
	h := furnish(t)
	before := h.stored()
	check := func(line, near string) {
		t.Helper()
		got := h.jorc(h.line(line)...)
		if got.code != exitFailed || (got.stdout != "" && !strings.Contains(line, "verify")) || strings.Count(got.stderr, "\n") > 2 || !strings.Contains(got.stderr, "did you mean \""+near+"\"?") {
			t.Errorf("jorc %s: %+v, want exit 1 and the suggestion %s", line, got, near)
		}
		if after := h.stored(); !maps.Equal(before, after) {
			t.Errorf("jorc %s: keys changed from %v to %v", line, before, after)
			before = after
		}
	}
	meant := map[string]string{"ap-9": "app-9", "wbe": "web", "relaod": "reload", "r2": "r1", "j2": "j1", "convegre": "converge", "prdd": "prd", "NODEx": h.server.Node}
	for _, w := range walks {
		for _, line := range w.wrong {
			for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" =,", r) }) {
				if near, ok := meant[word]; ok {
					check(line, near)
				}
			}
		}
		if w.gone != "" {
			got := h.jorc(h.line(w.gone)...)
			if got.code != exitOK || !strings.Contains(got.stderr, `did you mean "app-9"?`) || !maps.Equal(before, h.stored()) {
				t.Errorf("jorc %s: %+v, want exit 0, a suggestion and no change", w.gone, got)
			}
		}
		if w.line != "" && !w.local && !strings.Contains(w.path, "pending") {
			check("--cluster prdd "+w.line, "prd")
		}
	}
}

// TestMissingTokenFile: no command asks Consul without the token that it should
// have; it exits 2.
func TestMissingTokenFile(t *testing.T) {
	t.Parallel()
	h := furnish(t)
	h.env["EDITOR"] = "true"
	h.env["CONSUL_HTTP_TOKEN_FILE"] = filepath.Join(h.dir, "absent")
	h.asked()
	before := h.requests
	for _, w := range walks {
		if w.line == "" {
			continue
		}
		got := h.jorc(h.line(w.line)...)
		if told := strings.Contains(got.stderr, "token cannot be read"); told != (got.code == exitUsage) || !told && !w.local {
			t.Errorf("jorc %s: %+v, want exit 2 and the reason", w.line, got)
		}
	}
	if asked := h.requests - before; asked > 0 {
		t.Errorf("Consul was asked %d times", asked)
	}
}

// TestAnswersThatCannotBeWritten: a command that answers on stdout exits 1 when
// that is full, or a pipe that was closed, and says so on stderr.
func TestAnswersThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	reader, closed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	h := furnish(t)
	h.env["EDITOR"] = "true"
	for _, w := range walks {
		if w.line == "" {
			continue
		}
		for stdout, want := range map[*os.File]string{full: "no space left on device", closed: "broken pipe"} {
			line := h.line(w.line)
			before := result{stdout: "endless"}
			if !w.endless {
				before = h.jorc(line...)
			}
			if before.stdout == "" {
				continue
			}
			var stderr bytes.Buffer
			host := h.host(nil, &stderr)
			host.stdout = stdout
			code := run(t.Context(), line, host)
			wantCode := exitFailed
			if strings.Contains(w.path, "pending") {
				wantCode = before.code // its code is the answer
			}
			if code != wantCode || !strings.Contains(stderr.String(), want) {
				t.Errorf("jorc %s: exit %d, stderr %q, want exit %d and %q", w.line, code, &stderr, wantCode, want)
			}
			if w.path == "cluster run" && !regexp.MustCompile(`run "[0-9a-z-]+" was created`).Match(stderr.Bytes()) {
				t.Errorf("jorc %s: stderr %q names no run", w.line, &stderr)
			}
		}
	}
}

// TestBrokenPipe: also the process itself survives a closed pipe, and names the run.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	h := furnish(t)
	reader, closed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	var stderr output
	env := map[string]string{"JORC_CONFIG": h.configured.dir}
	cmd := below(t, env, func(c *exec.Cmd) { c.Stdout, c.Stderr = closed, &stderr }, "run", "converge", "--id", "piped")
	err = cmd.Wait()
	_ = closed.Close()
	if cmd.ProcessState.ExitCode() != exitFailed || !strings.Contains(stderr.String(), `run "piped" was created`) {
		t.Errorf("%v: stderr %q", err, &stderr)
	}
	if got := h.jorc("cluster", "runs", "piped", "-o", "json"); got.code != exitOK {
		t.Errorf("the run: %+v", got)
	}
}

// TestVerbose: --verbose names the cluster that a command acts on, on stderr.
func TestVerbose(t *testing.T) {
	t.Parallel()
	h := furnish(t)
	for _, line := range []string{"update current", "cluster members", "status list", "cluster slots", "current_version"} {
		got := h.jorc(h.line("--verbose " + line)...)
		if want := `jorc: cluster "prd" below prefix "site" of Consul at ` + h.proxy.Addr + "\n"; got.code != exitOK || got.stderr != want {
			t.Errorf("jorc --verbose %s: %+v, want stderr %q", line, got, want)
		}
	}
}

// TestAnswersNameTheirCluster: each object of a JSON answer says which cluster
// answered. Params, meta and archives are data of users, and stay as they are.
func TestAnswersNameTheirCluster(t *testing.T) {
	t.Parallel()
	h := furnish(t)
	named := 0
	for _, w := range walks {
		data := slices.ContainsFunc([]string{"cluster profile", "cluster meta", "cluster export"}, func(p string) bool { return strings.HasPrefix(w.path, p) })
		if w.line == "" || w.local || w.endless || w.path == "local_health" || data && w.path != "cluster profile token" {
			continue // local_health is about this host
		}
		line := w.line
		if !strings.Contains(line, "-o json") {
			line = "-o json " + line
		}
		var answer any
		if got := h.jorc(h.line(line)...); json.Unmarshal([]byte(got.stdout), &answer) != nil {
			continue // the command prints no JSON
		}
		all, isList := answer.([]any)
		if !isList {
			all = []any{answer}
		}
		for _, one := range all {
			object, isObject := one.(map[string]any)
			if isObject && object["cluster"] != "prd" {
				t.Errorf("jorc %s: the cluster that answered is %v: %v", line, object["cluster"], object)
			}
			named++
		}
	}
	if named < 15 {
		t.Errorf("only %d answers are JSON", named)
	}
}

// TestStatusOfUnknownCategory: a category that is close to a built-in one, or the name
// of a host, is recorded with a warning.
func TestStatusOfUnknownCategory(t *testing.T) {
	t.Parallel()
	h := furnish(t)
	for category, want := range map[string]string{
		"app-9":  "is the name of a host",
		"confg":  `did you mean "config"?`,
		"backup": "",
	} {
		got := h.jorc("status", "set", category, "failed")
		if got.code != exitOK || got.stdout != "" || !strings.Contains(got.stderr, want) || (want == "") != (got.stderr == "") {
			t.Errorf("jorc status set %s failed: %+v, want the warning %q", category, got, want)
		}
	}
}

// TestWrongConfigEverywhere: with an invalid configuration no command acts on the
// default cluster; it exits 2.
func TestWrongConfigEverywhere(t *testing.T) {
	t.Parallel()
	h := furnish(t)
	h.write("clutser = \"prd\"\n")
	before := h.requests
	for _, w := range walks {
		if w.line == "" || slices.Contains([]string{"completion bash", "config explain", "completion fish", "completion zsh", "man", "migrate consul-template", "migrate envconsul", "version", "doctor"}, w.path) {
			continue
		}
		code := exitUsage
		if strings.Contains(w.path, "pending") {
			code = exitPending
		}
		got := h.jorc(h.line(w.line)...)
		if got.code != code || !strings.Contains(got.stdout+got.stderr, "cluster") {
			t.Errorf("jorc %s: %+v, want exit %d", w.line, got, code)
		}
	}
	if asked := h.requests - before; asked > 0 {
		t.Errorf("Consul was asked %d times", asked)
	}
}

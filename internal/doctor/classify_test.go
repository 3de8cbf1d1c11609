package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

func TestClassifyVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]Status{
		"1.20.1": OK, "1.18.0": OK, "1.22.0-rc1": OK, "1.18.2+ent": OK,
		"1.17.9": Warn, "1.11.0": Warn, "1.10.9": Fail, "0.9.3": Fail, "2.0.0": Warn, "": Warn, "latest": Warn,
	} {
		if got, _, _ := classifyVersion(version); got != want {
			t.Errorf("%q: got %s, want %s", version, got, want)
		}
	}
	pinned, err := filepath.Glob(filepath.Join(consultest.Root(t), "tools", "consul", "1.*.mod"))
	if err != nil || !slices.ContainsFunc(pinned, func(file string) bool {
		return strings.HasPrefix(filepath.Base(file), fmt.Sprintf("%d.%d.", testedMajor, testedMinor))
	}) {
		t.Errorf("%d.%d is not among the versions that tools/consul pins: %v, %v", testedMajor, testedMinor, pinned, err)
	}
	for _, file := range pinned {
		if got, detail, _ := classifyVersion(filepath.Base(file)); got != OK {
			t.Errorf("%s: got %s, %s", file, got, detail)
		}
	}
}

func TestClassifySkew(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ahead time.Duration
		want  Status
		text  string
	}{
		{0, OK, "agrees with the leader's"},
		{1400 * time.Millisecond, OK, "agrees with the leader's"},
		{-1400 * time.Millisecond, OK, "agrees with the leader's"},
		{3 * time.Second, Warn, "about 3s ahead of the leader's"},
		{-2 * time.Minute, Warn, "about 2m0s behind the leader's"},
	} {
		got, text, _ := classifySkew(test.ahead, "the leader's")
		if got != test.want || text != test.text {
			t.Errorf("%v: got %s %q, want %s %q", test.ahead, got, text, test.want, test.text)
		}
	}
}

func TestClassifyConnections(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		wanted, most int
		want         Status
	}{{64, 200, OK}, {150, 200, OK}, {151, 200, Warn}, {200, 200, Warn}, {201, 200, Fail}, {64, 0, OK}, {64, -1, OK}} {
		if got, _, _ := classifyConnections(test.wanted, test.most); got != test.want {
			t.Errorf("%d of %d: got %s, want %s", test.wanted, test.most, got, test.want)
		}
	}
}

func TestClassifySettings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		settings map[string]any
		want     int // warnings
	}{
		{nil, 0},
		{map[string]any{"DevMode": false, "DNSDomain": "consul.", "EnableLocalScriptChecks": true}, 0},
		{map[string]any{"DevMode": true, "EnableRemoteScriptChecks": true, "DNSDomain": "corp."}, 3},
		{map[string]any{"DNSDomain": "corp.", "DNSAltDomain": "consul."}, 0},
	} {
		got := 0
		for _, f := range classifySettings("x", test.settings) {
			if f.Status == Warn && f.Remedy != "" {
				got++
			}
		}
		if got != test.want {
			t.Errorf("%v: %d warnings, want %d", test.settings, got, test.want)
		}
	}
}

func TestClassifyNode(t *testing.T) {
	t.Parallel()
	serf := func(status string) *consul.HealthCheck {
		return &consul.HealthCheck{CheckID: "serfHealth", Status: status, Output: "Agent not live\nmore"}
	}
	for _, test := range []struct {
		checks consul.HealthChecks
		hidden bool
		want   Status
		text   string
	}{
		{consul.HealthChecks{serf("passing")}, false, OK, "n is registered and alive"},
		{consul.HealthChecks{{CheckID: "other", Status: "critical"}, serf("critical")}, false, Fail, "n is registered, but its serfHealth is critical: Agent not live"},
		{consul.HealthChecks{{CheckID: "_node_maintenance", Notes: "disk"}, serf("passing")}, false, Warn, "n is in maintenance: disk"},
		{nil, true, Skip, "the token may not see node n"},
		{nil, false, Fail, "n is not in the catalog, or has no serfHealth check"},
	} {
		if got, text, _ := classifyNode("n", test.checks, test.hidden); got != test.want || text != test.text {
			t.Errorf("got %s %q, want %s %q", got, text, test.want, test.text)
		}
	}
}

// TestClassifyMaintenance: for jorc's own maintenance the remedy is not to end it
// manually.
func TestClassifyMaintenance(t *testing.T) {
	t.Parallel()
	for notes, want := range map[string]string{
		"disk":               "'consul maint -disable' ends it",
		"jorc: update to v2": "jorc ends it when the host has converged: 'jorc update why' lists what is missing",
	} {
		if _, _, remedy := classifyNode("n", consul.HealthChecks{{CheckID: "_node_maintenance", Notes: notes}}, false); remedy != want {
			t.Errorf("%s: %q, want %q", notes, remedy, want)
		}
	}
}

func TestClassifyDNS(t *testing.T) {
	t.Parallel()
	refused := &catalog.DNSError{Name: servers, Type: "A", Class: catalog.ErrDNSRefused}
	gone := errors.New("connection refused")
	for _, test := range []struct {
		name       string
		err, other error
		want       Status
		remedy     string // part of it
	}{
		{"dns_udp", nil, gone, OK, ""},
		{"dns_tcp", gone, nil, Warn, "open TCP"},
		{"dns_udp", gone, nil, Warn, "open UDP"},
		{"dns_tcp", gone, gone, Fail, "--dns-addr"},
		{"dns_udp", refused, refused, Fail, "forward"},
		{"dns_udp", &catalog.DNSError{Class: catalog.ErrNXDomain}, nil, Warn, "DNS token"},
		{"dns_udp", &catalog.DNSError{Class: catalog.ErrServFail}, nil, Warn, "leader"},
	} {
		got := classifyDNS(test.name, "addr", test.err, test.other)
		if got.Status != test.want || !strings.Contains(got.Remedy, test.remedy) {
			t.Errorf("%s %v, %v: got %+v", test.name, test.err, test.other, got)
		}
	}
}

func TestClassifyAgreement(t *testing.T) {
	t.Parallel()
	entry := func(addr string, port int, status string) *consul.ServiceEntry {
		return &consul.ServiceEntry{
			Node: &consul.Node{Address: addr}, Service: &consul.AgentService{Port: port},
			Checks: consul.HealthChecks{{Status: status}},
		}
	}
	answer := func(cut bool, addrs ...string) catalog.SRVAnswer {
		a := catalog.SRVAnswer{Cut: cut}
		for _, addr := range addrs {
			a.Instances = append(a.Instances, catalog.SRVInstance{Target: "x.", Port: 1, Addrs: []netip.Addr{netip.MustParseAddr(addr)}})
		}
		return a
	}
	two := []*consul.ServiceEntry{entry("10.0.0.1", 1, "passing"), entry("10.0.0.2", 1, "warning"), entry("10.0.0.3", 1, "critical")}
	for _, test := range []struct {
		name    string
		answer  catalog.SRVAnswer
		entries []*consul.ServiceEntry
		want    Status
	}{
		{"same", answer(false, "10.0.0.2", "10.0.0.1"), two, OK},
		{"fewer", answer(false, "10.0.0.2"), two, Warn},
		{"fewer, cut", answer(true, "10.0.0.2"), two, OK},
		{"more", answer(false, "10.0.0.1", "10.0.0.2", "10.0.0.3"), two, Warn},
		{"others", answer(false, "10.0.1.1", "10.0.1.2"), two, Warn},
		{"IPv6", answer(false, "fd00::1"), []*consul.ServiceEntry{entry("fd00::1", 1, "passing")}, OK},
	} {
		if got, text, _ := classifyAgreement(test.answer, test.entries); got != test.want {
			t.Errorf("%s: got %s %q, want %s", test.name, got, text, test.want)
		}
	}
}

func TestClassifySpace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		free, files, filesFree uint64
		want                   Status
	}{{1 << 30, 100, 50, OK}, {100 << 20, 100, 50, Warn}, {1 << 20, 100, 50, Fail}, {1 << 30, 100, 0, Fail}, {1 << 30, 0, 0, OK}} {
		if got, _, _ := classifySpace("d", test.free, test.files, test.filesFree); got != test.want {
			t.Errorf("%+v: got %s", test, got)
		}
	}
}

func TestClassifyStateDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, text, _ := classifyStateDir(filepath.Join(dir, "none")); got != Warn {
		t.Errorf("missing: %s %s", got, text)
	}
	if got, text, _ := classifyStateDir(file); got != Fail {
		t.Errorf("a file: %s %s", got, text)
	}
	if got, text, _ := classifyStateDir(dir); got == Skip || !strings.Contains(text, "MiB free") {
		t.Errorf("a directory: %s %s", got, text)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v left behind, %v", left, err)
	}
}

func TestClassifyTokenFile(t *testing.T) {
	t.Parallel()
	const secret = "b1946ac9-secret"
	for _, test := range []struct {
		content string
		mode    os.FileMode
		want    Status
	}{
		{secret, 0o600, OK},
		{secret, 0o400, OK},
		{secret, 0o640, Warn},
		{secret, 0o644, Fail},
		{secret, 0o602, Fail},
		{" \n", 0o600, Fail},
	} {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, test.mode); err != nil {
			t.Fatal(err)
		}
		got, text, remedy := classifyTokenFile(path)
		if got != test.want || strings.Contains(text+remedy, secret) {
			t.Errorf("%04o: got %s %q, want %s", test.mode, got, text, test.want)
		}
	}
	if got, _, _ := classifyTokenFile("/no/such/token"); got != Fail {
		t.Errorf("missing: got %s", got)
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	checks := consul.HealthChecks{
		{CheckID: "serfHealth", Name: "Serf", Status: "passing"},
		{CheckID: "w", Name: "slow", Status: "warning", ServiceName: "web", ServiceID: "web-1"},
		{CheckID: "_node_maintenance", Name: "Node Maintenance Mode", Status: "critical", Notes: "disk"},
		{CheckID: "_service_maintenance:db", Name: "Service Maintenance Mode", Status: "critical", ServiceName: "db", ServiceID: "db", Notes: "upgrade"},
		{CheckID: "b", Name: "dead", Status: "critical", ServiceName: "web", ServiceID: "web-2", Output: "exit 2\nrest"},
	}
	describe := func(h NodeHealth) string {
		var b strings.Builder
		for _, c := range h.Checks {
			fmt.Fprintf(&b, "%s/%s/%s;", c.ServiceID, c.State, c.Summary())
		}
		return b.String()
	}
	bad := "web-2/critical/exit 2;/maintenance/disk;db/maintenance/upgrade;"
	if h := summarize("n", checks, false); h.Healthy || h.Total != 5 || describe(h) != bad {
		t.Errorf("got %+v", h)
	}
	if h := summarize("n", checks, true); h.Healthy || describe(h) != bad+"web-1/warning/;" {
		t.Errorf("with warnings: got %+v", h)
	}
	if h := summarize("n", checks[:2], true); !h.Healthy || len(h.Checks) != 1 {
		t.Errorf("warnings do not count: got %+v", h)
	}
}

func TestElsewhere(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"127.0.0.1:8500":       "http://10.0.0.9:8500",
		"https://consul:8501":  "https://10.0.0.9:8501",
		"http://consul":        "http://10.0.0.9:8500",
		"unix:///run/c.socket": "",
	} {
		got, err := configOfLeader(config.Consul{Address: address, Token: "secret", TokenFile: "/file"}, "10.0.0.9:8300")
		if want == "" && err != nil {
			continue
		}
		if err != nil || got.Address != want || got.Token != "" || got.TokenFile != "" {
			t.Errorf("%s: got %+v, %v", address, got, err)
		}
	}
	if _, err := configOfLeader(config.Consul{Address: "127.0.0.1:8500"}, "nonsense"); err == nil {
		t.Error("want an error for a leader without a port")
	}
}

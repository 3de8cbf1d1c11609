package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestExitCodes: how each command exits when it is called wrong, when Consul
// is away, and when the token may nothing.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	denied := onServer(t, s)
	denied["CONSUL_HTTP_TOKEN"] = ""
	denied["JORC_NODE"] = "n1"
	file := filepath.Join(denied["JORC_STATE_DIR"], "version")
	if err := os.WriteFile(file, []byte("v1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	denied["JORC_VERSION_FILE"] = file
	away := maps.Clone(denied)
	away["CONSUL_HTTP_ADDR"] = "127.0.0.1:1"
	for _, test := range []struct {
		line         string
		away, denied int
		wrong        string // a wrong call of the same command
		usage        int
	}{
		{"update trigger v1", 3, 5, "update trigger", 2},
		{"update trigger v1 --dry-run", 3, 5, "update trigger a/b", 2},
		{"update trigger v1 --canary 1", 3, 5, "update trigger v1 --canary -1", 2},
		{"update trigger v1 --max-parallel 10%", 3, 5, "update trigger v1 --max-parallel 0%", 2},
		{"update trigger v1 --batches 1,100%", 3, 5, "update trigger v1 --batches 1,2", 2},
		{"update trigger v1 --window 22:00-06:00", 3, 5, "update trigger v1 --window never", 2},
		{"update trigger v1 --order db=0", 3, 5, "update trigger v1 --order db,db", 2},
		{"update show", 3, 5, "update show x", 2},
		{"update pause", 3, 5, "update pause x", 2},
		{"update resume", 3, 5, "update resume x", 2},
		{"update promote", 3, 5, "update promote x", 2},
		{"update abort", 3, 5, "update abort x", 2},
		{"update wait", 3, 5, "update wait x", 2},
		{"update wait --timeout 1m", 3, 5, "update wait --timeout -1s", 2},
		{"update current", 3, 5, "update current x", 2},
		{"update pending", 2, 2, "update pending x", 64},
		{"update pending -o json", 2, 2, "update pending --nosuch", 64},
		{"update pending --version-file /nosuch", 3, 3, "--nosuch update pending", 64},
		{"--log-json update pending", 2, 2, "--log-json=maybe update pending", 64},
		{"update local", 0, 0, "update local a b", 2},
		{"update local v1", 0, 0, "update local a/b", 2},
		{"update report", 3, 5, "update report x", 2},
		{"update report --version v2", 3, 5, "update report --version a/b", 2},
		{"update running", 3, 5, "update running x", 2},
		{"update hosts v1", 3, 5, "update hosts", 2},
		{"update verify v1 n1", 3, 5, "update verify", 2},
		{"update single v1", 3, 5, "update single", 2},
		{"update why", 3, 5, "update why a b", 2},
		{"status set config success", 3, 5, "status set config", 2},
		{"status set config --exit-code 0", 3, 5, "status set config success --exit-code 0", 2},
		{"status list", 3, 5, "status list a b", 2},
		{"status list n1", 3, 5, "status list a/b", 2},
		{"status failures", 3, 5, "status failures x", 2},
		{"status unaccounted", 3, 5, "status unaccounted x", 2},
		{"status decommission n1", 3, 5, "status decommission", 2},
		{"status decommission n1 --yes", 3, 5, "status decommission a/b", 2},
		{"status repair", 3, 5, "status repair x", 2},
		{"trigger_update v1", 3, 5, "trigger_update", 2},
		{"current_version", 3, 5, "current_version x", 2},
		{"pending_update", 2, 2, "pending_update x", 64},
		{"local_version", 0, 0, "local_version a b", 2},
		{"update_own_info", 3, 5, "update_own_info x", 2},
		{"running_versions", 3, 5, "running_versions x", 2},
		{"hosts_at_version v1", 3, 5, "hosts_at_version", 2},
		{"verify_hosts v1 n1", 3, 5, "verify_hosts", 2},
		{"check_single_version v1", 3, 5, "check_single_version", 2},
		{"update_status puppet 0", 3, 5, "update_status puppet", 2},
		{"update_own_status validation 0", 3, 5, "update_own_status validation maybe", 2},
		{"get_failures", 3, 5, "get_failures x", 2},
		{"local_health", 3, 5, "local_health x", 2},
		{"publish_service 10.0.0.1 web", 3, 5, "publish_service web", 2},
		{"cache_services --file " + file + ".yaml", 3, 5, "cache_services x", 2},
	} {
		for _, try := range []struct {
			what string
			env  map[string]string
			line string
			want int
		}{{"Consul away", away, test.line, test.away}, {"no rights", denied, test.line, test.denied}, {"wrong usage", denied, test.wrong, test.usage}} {
			got := jorc(t, try.env, strings.Fields(try.line)...)
			if got.code != try.want || got.code != 0 && got.stderr == "" {
				t.Errorf("%s: jorc %s: %+v, want exit %d", try.what, try.line, got, try.want)
			}
			if got.code != 0 && got.stdout != "" && !strings.Contains(try.line, "pending") {
				t.Errorf("%s: jorc %s: an answer with an error: %+v", try.what, try.line, got)
			}
		}
	}
}

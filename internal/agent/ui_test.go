package agent_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

// TestUI: an orchestrator with a ui block shows its cluster there, without params, and
// nowhere else.
func TestUI(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), `
orchestrator { interval = "1s" }
member { params = { password = "s3cret-of-the-host" } }
ui { address = "127.0.0.1:0" }
`)
	h.start()
	get := func(address, path string) (int, string, error) {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			return 0, "", err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body), err
	}
	const one = "/v1/fleet/clusters/default"
	h.eventually("the host is shown", func() error {
		status, body, err := get(h.agent.UIAddr(), one+"/hosts?columns=Params")
		if err == nil && (status != http.StatusOK || !strings.Contains(body, `"matched":1`)) {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
	for _, path := range []string{one + "/hosts?columns=Params,Meta", one + "/profile?values=true", one + "/hosts?filter=Params.password+!%3D+x&columns=Params.password"} {
		status, body, err := get(h.agent.UIAddr(), path)
		if err != nil || status != http.StatusOK || strings.Contains(body, "s3cret") || strings.Contains(body, `"key"`) {
			t.Errorf("%s: %d %s, %v", path, status, body, err)
		}
	}
	for _, path := range []string{one, "/v1/fleet/clusters"} {
		if status, body, err := get(h.agent.StatusAddr(), path); err != nil || status != http.StatusNotFound {
			t.Errorf("%s of http: %d %s, %v", path, status, body, err)
		}
	}
	if status, body, err := get(h.agent.UIAddr(), "/v1/fleet/clusters/other"); err != nil || status != http.StatusNotFound {
		t.Errorf("another cluster: %d %s, %v", status, body, err)
	}
}

// TestUISharesWatcher: what the ui shows comes from the orchestrator's watcher while this host
// orchestrates the cluster, so that a viewer adds no blocking query; before, the ui has a watcher of
// its own, which a standby has not.
func TestUISharesWatcher(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	proxy := s.Proxy()
	c := fleet.New(s.Client(), "jorc", "default")
	lock, err := c.Store().Lock(t.Context(), cluster.OrchestratorLock, kv.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(t, s, `
orchestrator { interval = "1s" }
member {}
ui { address = "127.0.0.1:0" }
`)
	h.address = proxy.Addr
	h.start()
	shown := func(path, want string) {
		t.Helper()
		h.eventually(path+" has "+want, func() error {
			answer, err := http.Get("http://" + h.agent.UIAddr() + "/v1/fleet/clusters/default" + path)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err == nil && !strings.Contains(string(body), want) {
				err = fmt.Errorf("%d %s", answer.StatusCode, body)
			}
			return err
		})
	}
	// changes returns how many blocking queries were open while two changes came to be shown.
	changes := func() (most map[string]int) {
		t.Helper()
		proxy.MostBlocking()
		if _, err := c.Pause(t.Context(), cluster.Hold{Reason: "disks"}); err != nil {
			t.Fatal(err)
		}
		shown("/attention", `"kind":"paused"`)
		if _, err := c.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		shown("/attention", `"count":0`)
		return proxy.MostBlocking()
	}
	// Those of a watcher that nothing else asks: the elector follows critical checks, too.
	watched := []string{"/v1/kv/jorc/default/", "/v1/health/state/warning", "/v1/catalog/services"}
	shown("/hosts", `"matched":1`)
	standby := changes()
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	shown("", `"orchestrator":"`+s.Node)
	h.eventually("the watcher of its own to end", func() error { // its queries may still be open
		if most := changes(); most[watched[0]] != 1 {
			return fmt.Errorf("%d queries for all keys", most[watched[0]])
		}
		return nil
	})
	elected := changes()
	for _, path := range watched {
		if standby[path] != 1 || elected[path] != 1 {
			t.Errorf("%s: %d blocking queries of a standby, %d of the orchestrator; want 1 and 1", path, standby[path], elected[path])
		}
	}
}

// TestUIConfiguration: what other hosts can reach needs TLS, and only orchestrators show
// a fleet.
func TestUIConfiguration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"orchestrator {}\nui { address = \"0.0.0.0:1\" }":                                        "tls",
		"orchestrator {}\nui { }":                                                                "address",
		"orchestrator {}\nui {\n address = \"0.0.0.0:1\"\n tls { cert_file = \"/c\" }\n}":        "key_file",
		"ui { address = \"127.0.0.1:1\" }":                                                       "orchestrator",
		"orchestrator { enabled = false }\nui { address = \"127.0.0.1:1\" }":                     "orchestrator",
		"orchestrator {}\nui {\n address = \"127.0.0.1:1\"\n tls { client_ca_file = \"/a\" }\n}": "cert_file",
	} {
		file := t.TempDir() + "/jorc.hcl"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load([]string{file}, config.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want an error about %s", text, err, want)
		}
	}
}

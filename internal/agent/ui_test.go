package agent_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
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

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/jorc/jorc/internal/consultest"
)

// TestCloudInit does what the snippet for cloud-init says, with the real
// program: the host is provisioned then, and doing it again changes nothing.
func TestCloudInit(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "cloud-init", "provisioned.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var snippet struct {
		Runcmd [][]string `yaml:"runcmd"`
	}
	if err := yaml.Unmarshal(data, &snippet); err != nil || len(snippet.Runcmd) != 1 {
		t.Fatalf("runcmd is %q, %v", snippet.Runcmd, err)
	}
	s := consultest.Start(t)
	env := onServer(t, s)
	for range 2 {
		for _, line := range snippet.Runcmd {
			cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
			cmd.Env = []string{"PATH=" + filepath.Dir(builtOnce(t)) + ":" + os.Getenv("PATH"), "CONSUL_HTTP_ADDR=" + s.HTTPAddr, consultest.NoConfig}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%q: %v\n%s", line, err, out)
			}
		}
	}
	session(t, s, env, "cloud-init", "status list\nstatus unaccounted")
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestRenderWithoutFiles: a file or directory that is missing is the reason that
// render gives, with or without Consul.
func TestRenderWithoutFiles(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	for name, address := range map[string]string{"with Consul": s.HTTPAddr, "without Consul": "127.0.0.1:1"} {
		for _, tt := range []struct{ what, template, want string }{
			{"source", `source = "DIR/absent.ctmpl"` + "\n" + `destination = "DIR/out"`, "absent.ctmpl: no such file"},
			{"directory", `contents = "x"` + "\n" + `destination = "DIR/no/out"`, "DIR/no"},
		} {
			for _, mode := range []string{"--once", "--dry-run", "--diff"} {
				dir := t.TempDir()
				conf := strings.ReplaceAll(fmt.Sprintf("template \"t\" {\n%s\n}\n", tt.template), "DIR", dir)
				env := map[string]string{"CONSUL_HTTP_ADDR": address, "JORC_STATE_DIR": filepath.Join(dir, "state")}
				got := jorc(t, env, "render", mode, "--timeout", "1s", "--config", writeFile(t, "jorc.hcl", conf))
				want := strings.ReplaceAll(tt.want, "DIR", dir)
				if got.code != exitFailed && got.code != exitUsage || !strings.Contains(got.stderr, want) || strings.Contains(got.stderr, "could not be reached") {
					t.Errorf("%s, no %s, %s: got %+v, want exit 1 or 2 and %q", name, tt.what, mode, got, want)
				}
				if _, err := os.Stat(filepath.Join(dir, "no")); err == nil {
					t.Errorf("%s: %s created a directory", name, mode)
				}
			}
		}
	}
}

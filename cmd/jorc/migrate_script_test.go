package main

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestMigrateScript: for each of six configurations consul-template renders its files;
// then one script converts the configuration with the built jorc, validates the
// result, and finds that jorc would change no file. envconsul renders no files: jorc
// runs its program with the same variables.
func TestMigrateScript(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	vault := vaultPKI(t)
	for key, value := range map[string]string{
		"nginx/connections": "1024", "haproxy/maxconn": "4096", "haproxy/backends/web": "10.0.0.1:80", "haproxy/backends/api": "10.0.0.2:80",
		"app/config/log-level": "debug", "app/config/db/pool": "5", "many/0/a": "1", "many/0/b": "2", "many/1/c": "${x} %{y}", "many/2/d": "é",
	} {
		s.Run("kv", "put", key, value)
	}
	for _, name := range []string{"nginx-exec", "haproxy-reload", "vault-pki", "envconsul-app", "many-templates", "legacy"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, s, "")
			in := copyConfiguration(t, m, filepath.Join("testdata", "migrate", name), strings.NewReplacer("DIR", m.dir, "CONSUL", s.HTTPAddr, "VAULT", vault))
			m.env = append(m.env, "PATH="+filepath.Dir(builtOnce(t))+":"+os.Getenv("PATH"))
			if name == "envconsul-app" {
				m.migrateScript(t, "envconsul", in...)
				got := m.run("agent", "--once", "--config", m.path("jorc"))
				want := "DB_PASSWORD=hunter2\nDB_POOL=5\nLOG_LEVEL=debug"
				if got.code != 0 || sortedLines(got.stdout) != want {
					t.Errorf("got %+v, want %q", got, want)
				}
				return
			}
			args := []string{"-once", "-log-level=err", "-consul-addr=" + s.HTTPAddr}
			for _, file := range in {
				args = append(args, "-config="+file)
			}
			program := exec.CommandContext(t.Context(), consulTemplate(t), args...)
			program.Env = m.env
			if text, err := program.CombinedOutput(); err != nil {
				t.Fatalf("consul-template: %v\n%s", err, text)
			}
			before := files(t, m.path("files"))
			m.migrateScript(t, "consul-template", append(in, "--", "-consul-addr="+s.HTTPAddr)...)
			if after := files(t, m.path("files")); before == "" || after != before {
				t.Errorf("got files\n%s\nwant\n%s", after, before)
			}
		})
	}
}

// migrateScript runs the script, which must find no difference.
func (m *machine) migrateScript(t *testing.T, tool string, args ...string) {
	t.Helper()
	script, err := filepath.Abs("testdata/migrate/migrate.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{script, tool, m.path("jorc")}, args...)...)
	cmd.Env, cmd.Dir = m.env, m.dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if out, err := cmd.Output(); err != nil || strings.Contains(string(out), "@@") {
		t.Errorf("the script: got %v and\n%s\nstderr:\n%s", err, out, &stderr)
	}
}

// copyConfiguration copies a configuration, and makes the programs that it names. It
// returns the files that the tool reads.
func copyConfiguration(t *testing.T, m *machine, dir string, paths *strings.Replacer) []string {
	t.Helper()
	for _, sub := range []string{"in", "bin", "files"} {
		if err := os.Mkdir(m.path(sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.write("token", "root\n")
	for _, program := range []string{"nginx", "haproxy", "systemctl", "restart"} {
		if err := os.WriteFile(m.path("bin/"+program), []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var configs []string
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		m.write("in/"+e.Name(), paths.Replace(string(text)))
		if filepath.Ext(e.Name()) == ".hcl" {
			configs = append(configs, m.path("in/"+e.Name()))
		}
	}
	return configs
}

// files lists the files below dir with their modes and contents.
func files(t *testing.T, dir string) string {
	t.Helper()
	var list strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		list.WriteString(info.Mode().String() + " " + path + "\n" + string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list.String()
}

// vaultPKI answers as Vault's PKI and key-value stores do.
func vaultPKI(t *testing.T) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var data map[string]any
		switch {
		case r.Header.Get("X-Vault-Token") != "root":
			w.WriteHeader(http.StatusForbidden)
			return
		case r.URL.Path == "/v1/pki/issue/web":
			data = map[string]any{"certificate": "CERTIFICATE", "issuing_ca": "CA", "private_key": "KEY", "serial_number": "1"}
		case r.URL.Path == "/v1/secret/db":
			data = map[string]any{"password": "hunter2"}
		default:
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"data": data, "lease_duration": 3600}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// consulTemplate returns the path of consul-template's program.
func consulTemplate(t *testing.T) string {
	t.Helper()
	if program := os.Getenv("CONSUL_TEMPLATE_BIN"); program != "" {
		return program
	}
	return filepath.Join(consultest.Root(t), "bin", "consul-template")
}

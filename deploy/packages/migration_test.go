//go:build packages

package packages_test

import (
	"os"
	"path/filepath"
	"strings"
)

// vaultStandIn answers as Vault's PKI and key-value stores do.
const vaultStandIn = `
import http.server, json
answers = {
    "/v1/pki/issue/web": {"certificate": "CERTIFICATE", "issuing_ca": "CA", "private_key": "KEY", "serial_number": "1"},
    "/v1/secret/db": {"password": "hunter2"},
}
class Vault(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        data = answers.get(self.path.split("?")[0])
        known = data is not None and self.headers.get("X-Vault-Token") == "root"
        self.send_response(200 if known else 404)
        self.end_headers()
        if known:
            self.wfile.write(json.dumps({"data": data, "lease_duration": 3600}).encode())
    do_PUT = do_POST = do_GET
http.server.HTTPServer(("127.0.0.1", 8200), Vault).serve_forever()
`

// migration: with the installed package one script converts each of six configurations,
// whose files consul-template rendered, and finds that jorc would change no file.
func (m *machine) migration() {
	t := m.t
	const data = "../../cmd/jorc/testdata/migrate"
	program := os.Getenv("CONSUL_TEMPLATE_BIN")
	if program == "" {
		program = "bin/consul-template"
	}
	run(t, "install", "-m", "0755", program, filepath.Join(m.root, "usr/local/bin/consul-template"))
	m.copyFile(filepath.Join(data, "migrate.sh"), "/srv/migrate.sh", strings.NewReplacer())
	m.write("/srv/vault.py", vaultStandIn)
	m.run("systemd-run", "--quiet", "--unit=vault", "python3", "/srv/vault.py")
	m.eventually("Vault's stand-in answers", nonEmpty, "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8200 && echo yes")
	for key, value := range map[string]string{
		"nginx/connections": "1024", "haproxy/maxconn": "4096", "haproxy/backends/web": "10.0.0.1:80", "haproxy/backends/api": "10.0.0.2:80",
		"app/config/log-level": "debug", "app/config/db/pool": "5", "many/0/a": "1", "many/0/b": "2", "many/1/c": "${x} %{y}", "many/2/d": "é",
	} {
		m.run("consul", "kv", "put", key, value)
	}
	entries, err := os.ReadDir(data)
	if err != nil {
		t.Fatal(err)
	}
	configurations := 0
	for _, e := range entries {
		if e.IsDir() {
			configurations++
			m.migrate(filepath.Join(data, e.Name()), "/srv/"+e.Name())
		}
	}
	if configurations != 6 {
		t.Errorf("%d configurations in %s, want 6", configurations, data)
	}
}

// migrate copies a configuration to dir, renders its files, and runs the script.
func (m *machine) migrate(from, dir string) {
	t := m.t
	t.Helper()
	paths := strings.NewReplacer("DIR", dir, "CONSUL", "127.0.0.1:8500", "VAULT", "http://127.0.0.1:8200")
	m.run("mkdir", "-p", dir+"/bin", dir+"/files")
	for _, program := range []string{"nginx", "haproxy", "systemctl", "restart"} {
		m.write(dir+"/bin/"+program, "#!/bin/sh\nexit 0\n")
	}
	m.run("chmod", "-R", "0755", dir+"/bin")
	m.write(dir+"/token", "root\n")
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	var configs []string
	for _, e := range entries {
		m.copyFile(filepath.Join(from, e.Name()), dir+"/in/"+e.Name(), paths)
		if filepath.Ext(e.Name()) == ".hcl" {
			configs = append(configs, dir+"/in/"+e.Name())
		}
	}
	if filepath.Base(dir) == "envconsul-app" {
		m.script(append([]string{"envconsul", dir + "/jorc"}, configs...)...)
		got := strings.Fields(m.run("jorc", "agent", "--once", "--log-level", "error", "--config", dir+"/jorc"))
		for _, want := range []string{"DB_PASSWORD=hunter2", "DB_POOL=5", "LOG_LEVEL=debug"} {
			if !strings.Contains(strings.Join(got, "\n"), want) {
				t.Errorf("the program's variables are %q, want %s in them", got, want)
			}
		}
		return
	}
	args := []string{"consul-template", "-once", "-log-level=err", "-consul-addr=127.0.0.1:8500"}
	for _, file := range configs {
		args = append(args, "-config="+file)
	}
	m.run(args...)
	list := []string{"find", dir + "/files", "-type", "f", "-printf", "%m %u %p\n", "-exec", "cat", "{}", ";"}
	before := m.run(list...)
	m.script(append(append([]string{"consul-template", dir + "/jorc"}, configs...), "--", "-consul-addr=127.0.0.1:8500")...)
	if after := m.run(list...); before == "" || after != before {
		t.Errorf("%s: files\n%s\nwant\n%s", dir, after, before)
	}
}

// script runs the script of the migration, which must find no difference.
func (m *machine) script(args ...string) {
	m.t.Helper()
	if out := m.run(append([]string{"sh", "/srv/migrate.sh"}, args...)...); strings.Contains(out, "@@") {
		m.t.Errorf("the script %q finds differences:\n%s", args, out)
	}
}

// copyFile copies a file of the repository into the machine.
func (m *machine) copyFile(from, to string, paths *strings.Replacer) {
	m.t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		m.t.Fatal(err)
	}
	m.write(to, paths.Replace(string(text)))
}

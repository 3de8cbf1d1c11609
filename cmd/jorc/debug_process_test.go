package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// unpacked are the files of an archive, by name, without their folder.
func unpacked(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(header.Name)] = string(data)
	}
}

// forms are a secret as a text may hold it: raw, base64 at each of three places, hex,
// percent-encoded and as JSON.
func forms(secret string) []string {
	all := []string{secret, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))), url.QueryEscape(secret), url.PathEscape(secret)}
	percent := ""
	for _, c := range []byte(secret) {
		percent += fmt.Sprintf("%%%02X", c)
	}
	quoted, _ := json.Marshal(secret)
	all = append(all, percent, strings.Trim(string(quoted), `"`))
	for before, skip := range []int{0, 2, 3} {
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + secret))
		all = append(all, text[skip:(before+len(secret))*8/6])
	}
	return all
}

// TestDebugWithoutSecrets: of fifty secrets, planted wherever users give values to jorc
// or programs print them, none is in the archive.
func TestDebugWithoutSecrets(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	var planted []string
	// Words with letters only, with digits, and with characters that encodings change.
	shapes := []string{"Swordfish%02dzander", "s3cr3t-%02d-vAlue", "pa&ss/%02d+w\"ord<é>", "quietlywhispered%c"}
	plant := func() string {
		n := len(planted)
		secret := ""
		if shape := shapes[n%len(shapes)]; strings.Contains(shape, "%c") {
			secret = fmt.Sprintf(shape, 'a'+n/2) + "otter"
		} else {
			secret = fmt.Sprintf(shape, n)
		}
		planted = append(planted, secret)
		return secret
	}
	quote := func(secret string) string {
		text, _ := json.Marshal(secret)
		return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(string(text))
	}
	script := func(secret string) string { // a shell command that prints it
		return quote("printf '%s\n' '" + secret + "'")
	}
	vault := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"lease_duration":3600,"data":{"pw":%s}}`, quote(planted[0]))
	}))
	t.Cleanup(vault.Close)
	plant() // Vault's
	m := newMachine(t, s, `
cluster   = "prod"
log_level = "trace"
http { address = "127.0.0.1:0" }
vault {
  address    = "`+vault.URL+`"
  token_file = "DIR/vault-token"
}
orchestrator {
  enabled  = true
  interval = "1s"
  sink "webhook" {
    url = "http://joe:`+url.QueryEscape(plant())+`@127.0.0.1:1/hooks/`+url.PathEscape(plant())+`?token=`+url.QueryEscape(plant())+`"
  }
}
member {
  roles  = ["web"]
  params = { own = `+quote(plant())+`, nested = { list = [`+quote(plant())+`] } }
}
service "web" {
  port = 80
  tags = [`+quote(plant())+`]
  meta = { note = `+quote(plant())+` }
  check {
    script   = ["sh", "-c", `+script(plant())+`]
    interval = "1s"
  }
  check {
    script   = ["sh", "-c", `+quote("printf '%s' '"+plant()+"'; exit 2")+`]
    interval = "1s"
  }
  check {
    script   = ["sh", "-c", "cat DIR/hidden; exit 2"]
    interval = "1s"
  }
  check {
    http     = "http://ann:`+url.QueryEscape(plant())+`@127.0.0.1:1/`+url.PathEscape(plant())+`?key=`+url.QueryEscape(plant())+`"
    interval = "1s"
  }
}
template "vault" {
  contents    = "{{ with secret \"secret/app\" }}{{ .Data.pw }}{{ end }}"
  destination = "DIR/vault"
}
template "contents" {
  contents    = `+quote("{{/* "+plant()+" */}}x")+`
  destination = "DIR/contents"
}
template "prints" {
  contents    = "{{ key \"pw\" | len }}"
  destination = "DIR/prints"
  reload      = ["sh", "-c", "cat DIR/hidden >&2; exit 7"]
}
template "says" {
  contents    = "{{ key \"pw\" | len }}"
  destination = "DIR/says"
  check       = ["sh", "-c", "cat DIR/hidden; exit 9"]
}
template "waits" {
  contents    = "x"
  destination = "DIR/waits"
  requires "web" {}
}
template "key" {
  contents    = "{{ key \"pw\" | parseInt }}"
  destination = "DIR/key"
}
template "check" {
  contents    = "{{ key \"pw\" }}"
  destination = "DIR/check"
  check       = ["sh", "-c", `+quote("printf '%s' '"+plant()+"'; exit 1")+`]
}
template "reload" {
  contents    = "{{ key \"pw\" }}"
  destination = "DIR/reload"
  reload      = ["sh", "-c", `+quote("printf '%s' '"+plant()+"' >&2; exit 1")+`]
}
workflow "prints" {
  allow_params = ["given"]
  task "fails" {
    env    = { PW = `+quote(plant())+`, API_TOKEN = `+quote(plant())+` }
    script = `+quote("printf '%s\n' '"+plant()+"'; cat DIR/hidden; echo {{.Param \"pw\"}}; exit 3")+`
  }
}
`)
	// Only outputs of commands hold these words, of which one is short.
	m.write("hidden", plant()+" Zq7x\n"+plant()+"\n")
	planted = append(planted, "Zq7x")
	vaultToken := plant()
	m.write("vault-token", vaultToken+"\n")
	m.write("token", s.RootToken+"\n")
	planted = append(planted, s.RootToken)
	m.env = append(m.env, "CONSUL_HTTP_TOKEN_FILE="+m.path("token"), "JORC_CONFIG="+m.path("jorc.hcl"))
	for _, name := range []string{"CONSUL_HTTP_AUTH", "VAULT_TOKEN_UNUSED", "AWS_SECRET_ACCESS_KEY", "MY_PASSWORD", "JORC_NOTE"} {
		m.env = append(m.env, name+"="+plant())
	}
	m.put("pw", plant())
	for _, key := range []string{"jorc/prod/foreign", "jorc/prod/status/own/web", "jorc/prod/other/deep/key"} {
		m.put(key, plant())
	}
	m.put("jorc/prod/doc", `{"password":`+quote(plant())+`,"params":{"a":`+quote(plant())+`},"detail":`+quote("it says password="+plant())+`}`)
	d := m.agent()
	m.eventually("a check and a reload fail", func() error {
		status := d.get("/v1/status")
		return errors.Join(lacks(status, `"critical"`), lacks(status, "exit code 7"), lacks(status, "exit code 9"))
	})
	ok := func(args ...string) {
		t.Helper()
		if got := m.run(args...); got.code != exitOK {
			t.Fatalf("jorc %q: %+v", args, got)
		}
	}
	ok("cluster", "init", "prod")
	for _, scope := range [][]string{{}, {"--role", "web"}} {
		ok(append([]string{"cluster", "profile", "set", "secret", plant(), "--string"}, scope...)...)
	}
	ok("cluster", "profile", "set", "pw", plant(), "--string")
	ok("cluster", "profile", "set", "object", `{"`+strings.ReplaceAll(plant(), `"`, ``)+`":`+quote(plant())+`}`)
	ok("cluster", "meta", "set", "note", plant())
	for range 6 {
		m.run("cluster", "run", "prints", "--param", "given="+plant(), "--string", "--wait", "--timeout", "1m")
	}
	m.run("cluster", "hold", "--reason", "password "+plant())
	for len(planted) < 50 {
		m.put(fmt.Sprintf("jorc/prod/more/%d", len(planted)), plant())
	}

	m.env = append(m.env, "JORC_STATUS=unused")
	got := m.run("debug", "--out", m.path("report.tar.gz"), "-o", "json")
	if got.code != exitOK || !strings.Contains(got.stderr, "read it before you send it to others") {
		t.Fatalf("got %+v", got)
	}
	if info, err := os.Stat(m.path("report.tar.gz")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", info, err)
	}
	files := unpacked(t, m.path("report.tar.gz"))
	files["stdout"], files["stderr"] = got.stdout, got.stderr
	for n, secret := range planted {
		for name, text := range files {
			for _, form := range forms(secret) {
				if i := strings.Index(text, form); i >= 0 {
					t.Errorf("secret %d is in %s: %q", n, name, text[max(0, i-100):min(len(text), i+100)])
				}
			}
		}
	}
	for name, want := range map[string]string{
		"version.json": "v9.8.7", "configuration.json": `"prints"`, "environment.json": "CONSUL_HTTP_TOKEN_FILE", "doctor.json": `"findings"`,
		"goroutines.txt": "goroutine profile: total", "log.txt": "check of says: exit code 9", "events.json": `"kind"`, "keys.json": "jorc/prod/profile",
		"contents.json": "the agent's goroutines",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %s: %.2000s", name, want, files[name])
		}
	}
	if info, err := os.Stat(m.path("state/debug")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's directory: %v, %v, want mode 0700", info, err)
	}
	d.signal(syscall.SIGTERM)
	d.wantExit(0)

	m.write("token", s.NewToken(`agent_prefix "" { policy = "read" }`)+"\n")
	if got := m.run("debug", "--out", m.path("little.tar.gz"), "-o", "plain"); got.code != exitOK {
		t.Errorf("without rights and an agent: %+v", got)
	} else {
		for _, want := range []string{"the token may not read all keys", "lacks permission 'key:read'", "\nlog.txt\t0\t", "no agent answers"} {
			if !strings.Contains("\n"+got.stdout, want) {
				t.Errorf("without rights and an agent %q lacks %q", got.stdout, want)
			}
		}
	}
}

// TestDebugAlone: without Consul and an agent the archive says what it lacks; it replaces
// no file.
func TestDebugAlone(t *testing.T) {
	t.Parallel()
	m := &machine{t: t, dir: t.TempDir()}
	m.env = []string{"PATH=" + os.Getenv("PATH"), "CONSUL_HTTP_ADDR=127.0.0.1:1", "JORC_DNS_ADDR=127.0.0.1:1", "JORC_STATE_DIR=" + m.dir, consultest.NoConfig}
	got := m.run("debug", "--timeout", "2s")
	if got.code != exitOK {
		t.Fatalf("got %+v", got)
	}
	found, err := filepath.Glob(m.path("jorc-debug-*.tar.gz"))
	if err != nil || len(found) != 1 {
		t.Fatalf("got %v, %v, want one archive", found, err)
	}
	files := unpacked(t, found[0])
	for _, want := range []string{"no agent answers (only its user and root can ask it)", "keys.json"} {
		if !strings.Contains(files["contents.json"], want) {
			t.Errorf("contents.json lacks %q:\n%s", want, files["contents.json"])
		}
	}
	if _, ok := files["keys.json"]; ok || !strings.Contains(files["doctor.json"], `"fail"`) {
		t.Errorf("got %v", files)
	}
	before, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := m.run("debug", "--timeout", "1s", "--out", found[0]); got.code != exitFailed || !strings.Contains(got.stderr, "file exists") {
		t.Errorf("a file that exists: got %+v", got)
	}
	if after, err := os.ReadFile(found[0]); err != nil || !bytes.Equal(before, after) {
		t.Errorf("it was changed: %v", err)
	}
}

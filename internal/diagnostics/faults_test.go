package diagnostics_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/diagnostics"
	"github.com/jorc/jorc/internal/fleet"
)

// archive returns the files of a host's archive by their names.
func archive(t *testing.T, o diagnostics.Options) map[string]string {
	t.Helper()
	var out bytes.Buffer
	if err := diagnostics.Write(&out, "report", o.Now, diagnostics.Collect(t.Context(), o)); err != nil {
		t.Fatal(err)
	}
	zipped, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(data)
	}
}

// agentThat is an agent whose status is what answer writes.
func agentThat(t *testing.T, o *diagnostics.Options, answer http.HandlerFunc) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	o.Config.HTTP.Addr = strings.TrimPrefix(server.URL, "http://")
}

// secretFile writes a secret to a file.
func secretFile(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestSecretsStayOut: no secret that jorc knows is in the archive, whatever quotes it: also
// one that consists of short words and punctuation, or is short.
func TestSecretsStayOut(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	o := optionsFor(t, s, "secrets")
	secrets := []string{"p@ss!", "w0r#d", "horse-battery", "vt-7", "a.b:c/d", "hook key", "s3/x+y=", "e!n@v"}
	o.Config.Consul.Token, o.Config.Consul.Auth, o.Config.Vault.Token = "p@ss!", "user:w0r#d", "vt-7"
	o.Config.Consul.TokenFile = secretFile(t, "horse-battery")
	o.Config.Vault.TokenFile = secretFile(t, "a.b:c/d")
	o.Config.LogStore = &config.LogStore{S3: &config.S3{CredentialsFile: secretFile(t, "[default]\naws_secret_access_key = s3/x+y=")}}
	o.Config.Orchestrator = &config.Orchestrator{Sinks: []config.EventSink{{Kind: "webhook", SecretFile: secretFile(t, "hook key")}}}
	o.Environ = []string{"PATH=/bin", "CONSUL_HTTP_TOKEN=p@ss!", "APP_PASSWORD=e!n@v"}
	said := make([]string, 0, 4*len(secrets))
	for _, secret := range secrets {
		said = append(said, fmt.Sprintf("cannot use %q here", secret), "cannot use "+secret+".", "key="+secret, "("+secret+")")
	}
	o.Problem = errors.New(strings.Join(said, "; "))
	document := map[string]any{"state": "running", "stale": said, "error": said[0], "lost": strings.Join(said, "\n"), "node": said[1]}
	for _, text := range said {
		document["member of "+text] = map[string]any{"state": text, "detail": text, "version": text}
	}
	data, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	agentThat(t, &o, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) })
	if err := o.Client.KVPut(t.Context(), &consul.KVPair{Key: "jorc/secrets/nodes/n1", Value: data}); err != nil {
		t.Fatal(err)
	}
	var recent diagnostics.Log
	for _, text := range said {
		recent.Accept("jorc", hclog.Error, text, "error", errors.New(text), "node", text, "value", text)
	}
	serve(t, o.Config.StateDir, &recent)
	consultest.Eventually(t, "the agent's log", func(context.Context) error {
		files := archive(t, o)
		if !strings.Contains(files["report/log.txt"], "cannot use") || !strings.Contains(files["report/status.json"], `"state": "running"`) ||
			!strings.Contains(files["report/keys.json"], "jorc/secrets/nodes/n1") {
			return fmt.Errorf("got %q", files)
		}
		for name, text := range files {
			for _, secret := range secrets {
				if strings.Contains(text, secret) {
					t.Errorf("%s has %q: %s", name, secret, around(text, secret))
				}
			}
		}
		return nil
	})
}

func around(text, part string) string {
	i := strings.Index(text, part)
	return text[max(0, i-60):min(len(text), i+len(part)+20)]
}

// serve answers for an agent until the test ends.
func serve(t *testing.T, stateDir string, log *diagnostics.Log) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- diagnostics.Serve(ctx, stateDir, log) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// fullAfter is a writer on a disk that is full after some bytes.
type fullAfter struct{ left int }

func (w *fullAfter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		n := w.left
		w.left = 0
		return n, syscall.ENOSPC
	}
	w.left -= len(p)
	return len(p), nil
}

// TestFullDisk: wherever the disk is full, Write says so.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	o := optionsFor(t, consultest.Start(t), "full")
	parts := diagnostics.Collect(t.Context(), o)
	var whole bytes.Buffer
	if err := diagnostics.Write(&whole, "report", o.Now, parts); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < whole.Len(); n = min(n+97, max(n+1, whole.Len()-20)) { // the last bytes one by one
		if err := diagnostics.Write(&fullAfter{n}, "report", o.Now, parts); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("full after %d of %d bytes: got %v", n, whole.Len(), err)
		}
	}
	if err := diagnostics.Write(&fullAfter{whole.Len()}, "report", o.Now, parts); err != nil {
		t.Error(err)
	}
}

// TestStrangeAgents: what an agent answers wrongly, late or never is said, and the other parts are there.
func TestStrangeAgents(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	for _, tt := range []struct {
		name    string
		answer  http.HandlerFunc
		missing string
		content string
	}{
		{"an error", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }, "no agent answers: it answers 418", ""},
		{"another program", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "", `"withheld: 6 bytes"`},
		{"nothing", func(http.ResponseWriter, *http.Request) {}, "", `"withheld: 0 bytes"`},
		{"silence", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no agent answers: context deadline exceeded", ""},
		{"a broken connection", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "no agent answers: EOF", ""},
		{
			"half an answer",
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "100")
				_, _ = w.Write([]byte(`{"state": "s3cret"`))
				panic(http.ErrAbortHandler)
			},
			"no agent answers: ", "",
		},
		{
			"too much",
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"state": "` + strings.Repeat("s3cret", 1<<20) + `"}`))
			},
			"it answers more than 4 MiB", `"withheld: 4194304 bytes"`,
		},
		{
			"deep nesting",
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(strings.Repeat("[", 1<<20))) }, "", `"withheld: 1048576 bytes"`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := optionsFor(t, s, "strange")
			if tt.name == "silence" {
				o.Timeout = 200 * time.Millisecond
			}
			agentThat(t, &o, tt.answer)
			content, got := part(t, o, "status.json")
			if got.Missing != tt.missing && (tt.missing == "" || !strings.HasPrefix(got.Missing, tt.missing)) || strings.TrimSpace(content) != tt.content || strings.Contains(content, "s3cret") {
				t.Errorf("got %.200q, missing %q; want %q, %q", content, got.Missing, tt.content, tt.missing)
			}
		})
	}
}

// TestNoConsul: without Consul the archive has what there is, and says what is missing.
func TestNoConsul(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	client, err := consul.New(config.Consul{Address: strings.TrimPrefix(closed.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	o := diagnostics.Options{
		Config: &config.Config{StateDir: t.TempDir()}, Client: client, Cluster: fleet.New(client, "jorc", "c"),
		Timeout: time.Second, Now: time.Unix(1e9, 0).UTC(), Problem: errors.New("jorc.hcl:1,1: wrong"), NoAgent: "no agent runs on this system",
	}
	files := archive(t, o)
	var parts []diagnostics.Part
	if err := json.Unmarshal([]byte(files["report/contents.json"]), &parts); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"configuration.json": "wrong", "status.json": "switched off", "goroutines.txt": "no agent runs", "log.txt": "no agent runs",
		"events.json": "refused", "keys.json": "refused", "version.json": "", "environment.json": "", "doctor.json": "",
	}
	for _, p := range parts {
		text, known := want[p.Name]
		delete(want, p.Name)
		if !known || !strings.Contains(p.Missing, text) || (text == "") != (p.Missing == "") {
			t.Errorf("%s: missing %q, want %q", p.Name, p.Missing, text)
		}
		if _, there := files["report/"+p.Name]; there != (p.Bytes > 0) {
			t.Errorf("%s: there: %v, bytes: %d", p.Name, there, p.Bytes)
		}
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
}

// TestCutKeepsReason: a part that is cut still says what else is missing.
func TestCutKeepsReason(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	o := optionsFor(t, s, "numbers")
	value := []byte("[1" + strings.Repeat(",1", 240<<10) + "]") // grows by its indentation
	for i := range 10 {
		if err := o.Client.KVPut(t.Context(), &consul.KVPair{Key: fmt.Sprintf("jorc/numbers/nodes/n%d", i), Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	content, got := part(t, o, "keys.json")
	if len(content) != 4<<20 || !strings.Contains(got.Missing, "only 8 of 10 keys") || !strings.Contains(got.Missing, "cut after 4 MiB") {
		t.Errorf("got %d bytes, missing %q", len(content), got.Missing)
	}
}

// TestServeTrouble: the agent's socket replaces that of an agent that was killed, and nothing else.
func TestServeTrouble(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		prepare func(dir string) error
	}{
		{"a file in place of the directory", func(dir string) error { return os.WriteFile(filepath.Join(dir, "debug"), nil, 0o600) }},
		{"a directory in place of the socket", func(dir string) error { return os.MkdirAll(filepath.Join(dir, "debug", "socket", "full"), 0o700) }},
	} {
		dir := t.TempDir()
		if err := tt.prepare(dir); err != nil {
			t.Fatal(err)
		}
		if err := diagnostics.Serve(t.Context(), dir, &diagnostics.Log{}); err == nil || !strings.HasPrefix(err.Error(), "debug socket: ") {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
	o := optionsFor(t, consultest.Start(t), "serve")
	debug := filepath.Join(o.Config.StateDir, "debug")
	if err := os.Mkdir(debug, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(debug, "socket"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var recent diagnostics.Log
	recent.Accept("jorc", hclog.Info, "hello")
	serve(t, o.Config.StateDir, &recent)
	consultest.Eventually(t, "the agent answers", func(context.Context) error {
		if content, got := part(t, o, "log.txt"); !strings.Contains(content, "hello") {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	})
	if info, err := os.Stat(debug); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v; want a directory of its owner", info.Mode(), err)
	}
}

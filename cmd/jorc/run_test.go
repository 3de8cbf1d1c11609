package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
)

// result is what a command line left behind.
type result struct {
	code           int
	stdout, stderr string
}

// jorc runs a whole command in this process, with an environment of its own.
func jorc(t *testing.T, environ map[string]string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, testHost(environ, &stdout, &stderr))
	return result{code, stdout.String(), stderr.String()}
}

// apart are the variables that keep a command away from the machine's own Consul
// and jorc. A test may set them otherwise, also to "".
var apart = map[string]string{
	"CONSUL_HTTP_ADDR": "127.0.0.1:1", "JORC_DNS_ADDR": "127.0.0.1:1", "JORC_STATE_DIR": "/nonexistent/jorc",
}

func testHost(environ map[string]string, stdout, stderr *bytes.Buffer) host {
	return host{
		getenv: func(name string) string {
			if value, given := environ[name]; given {
				return value
			}
			return apart[name]
		},
		stdin:   strings.NewReader(""),
		stdout:  stdout,
		stderr:  stderr,
		hangup:  func(context.Context) <-chan struct{} { return nil },
		guard:   guardSelf(guardArg),
		process: guardSelf(processGuardArg),
		environ: func() []string { return []string{"PATH=" + os.Getenv("PATH")} },
		etc:     "/nonexistent/etc",
		build:   build{"v1.2.3", "abcdef", "2026-01-02T03:04:05Z", "go1.26", "linux/amd64"},
	}
}

// TestWrongUsage: wrong command lines exit 2 with one line that says what was
// close and where to read on, and print no usage text.
func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, args, want string }{
		{"command", "versoin", `jorc: unknown command "versoin", did you mean "version"?; see 'jorc --help'`},
		{"beginning of a command", "comp", `jorc: unknown command "comp", did you mean "completion"?; see 'jorc --help'`},
		{"nothing close", "zzzzzz", `jorc: unknown command "zzzzzz"; see 'jorc --help'`},
		{"command below", "config validat x", `jorc: unknown command "validat", did you mean "validate"?; see 'jorc config --help'`},
		{"no command below", "config", `jorc: missing command: one of validate, explain, schema; see 'jorc config --help'`},
		{"flag", "version --ouput json", `jorc: unknown flag --ouput, did you mean --output?; see 'jorc version --help'`},
		{"flag before the command", "--htp-addr=x version", `jorc: unknown flag --htp-addr, did you mean --http-addr?; see 'jorc --help'`},
		{"short flag", "version -x", `jorc: unknown flag -x; see 'jorc version --help'`},
		{"token on the command line", "version --token secret", `jorc: unknown flag --token, did you mean --token-file?; see 'jorc version --help'`},
		{"no value", "version -o", `jorc: flag --output needs a value; see 'jorc version --help'`},
		{"no value before --", "version -o -- json", `jorc: flag --output needs a value; see 'jorc version --help'`},
		{"value", "version -o xml", `jorc: --output is "xml", but must be one of table, json or plain; see 'jorc version --help'`},
		{"duration without a unit", "wait web --tries 2 --try-sleep 1", `jorc: invalid value "1" for flag --try-sleep: a duration needs a unit; write --try-sleep 1s for seconds; see 'jorc wait --help'`},
		{"boolean value", "version --log-json=maybe", `jorc: invalid boolean value "maybe" for flag --log-json; see 'jorc --help'`},
		{"arguments", "version 1", `jorc: no arguments expected; see 'jorc version --help'`},
		{"no paths", "config validate", `jorc: missing argument PATH; see 'jorc config validate --help'`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := jorc(t, nil, strings.Fields(test.args)...)
			if want := (result{exitUsage, "", test.want + "\n"}); got != want {
				t.Errorf("jorc %s:\ngot  %+v\nwant %+v", test.args, got, want)
			}
		})
	}
}

// TestEnvironment: a variable counts where no flag was given.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	plain := "v1.2.3\tabcdef\t2026-01-02T03:04:05Z\tgo1.26\tlinux/amd64\n"
	for _, test := range []struct {
		name, args string
		environ    map[string]string
		want       string
	}{
		{"variable", "version", map[string]string{"JORC_OUTPUT": "plain"}, plain},
		{"flag wins", "version -o plain", map[string]string{"JORC_OUTPUT": "json"}, plain},
		{"flag before the command", "--output plain version", nil, plain},
		{"short flag with its value", "version -oplain", nil, plain},
		{"last of two", "-o json version --output=plain", nil, plain},
		{"empty variable", "version", map[string]string{"JORC_OUTPUT": ""}, "jorc v1.2.3 (commit abcdef, 2026-01-02T03:04:05Z, go1.26, linux/amd64)\n"},
		{"--version", "--version", nil, "jorc v1.2.3 (commit abcdef, 2026-01-02T03:04:05Z, go1.26, linux/amd64)\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := jorc(t, test.environ, strings.Fields(test.args)...)
			if want := (result{exitOK, test.want, ""}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
	if got := jorc(t, map[string]string{"JORC_OUTPUT": "xml"}, "version"); got.code != exitUsage {
		t.Errorf("JORC_OUTPUT=xml: got %+v, want exit %d", got, exitUsage)
	}
}

func TestVersionJSON(t *testing.T) {
	t.Parallel()
	want := `{
  "version": "v1.2.3",
  "commit": "abcdef",
  "date": "2026-01-02T03:04:05Z",
  "go": "go1.26",
  "platform": "linux/amd64"
}
`
	if got := jorc(t, nil, "version", "-o", "json"); got.stdout != want || got.code != exitOK {
		t.Errorf("got %+v, want %s", got, want)
	}
}

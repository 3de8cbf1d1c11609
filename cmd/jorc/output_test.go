package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestPrint: one answer in the three formats.
func TestPrint(t *testing.T) {
	t.Parallel()
	l := listing{
		columns: []string{"service", "health"},
		rows:    [][]string{{"web", "passing"}, {"größer\tals\x1b[31m", "critical"}, {"", ""}},
		states:  []string{"health"},
	}
	for format, want := range map[string]string{
		formatTable: "SERVICE                HEALTH\nweb                    passing\n" + `größer\tals\u001b[31m  critical` + "\n\n",
		formatPlain: "web\tpassing\n" + `größer\tals\u001b[31m` + "\tcritical\n\t\n",
		formatJSON:  "[\n  \"a<b\"\n]\n",
	} {
		var stdout bytes.Buffer
		env := newEnvironment(testHost(map[string]string{"JORC_OUTPUT": format}, &stdout, &stdout))
		app := &cli.App{Writer: &stdout, Action: func(c *cli.Context) error { return env.print(c, l, []string{"a<b"}) }}
		if err := app.RunContext(t.Context(), []string{"jorc"}); err != nil {
			t.Fatal(err)
		}
		if stdout.String() != want {
			t.Errorf("%s:\ngot  %q\nwant %q", format, stdout.String(), want)
		}
	}
}

// TestTableColours: only words that are states are coloured, and the columns
// stay aligned.
func TestTableColours(t *testing.T) {
	t.Parallel()
	l := listing{columns: []string{"health", "node"}, rows: [][]string{{"passing", "passing"}, {"odd", "b"}}, states: []string{"health"}}
	var b bytes.Buffer
	if err := l.writeTable(&b, true); err != nil {
		t.Fatal(err)
	}
	want := "HEALTH   NODE\n\x1b[32mpassing\x1b[0m  passing\nodd      b\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// TestColour: nothing that is not a terminal is coloured.
func TestColour(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	env := newEnvironment(testHost(nil, &b, &b))
	if env.colour(&b) {
		t.Error("a buffer is coloured")
	}
}

// TestLogger: the log goes to stderr, in the format and from the level asked for.
func TestLogger(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, args string
		environ    map[string]string
		info, json bool
	}{
		{"default", "x", nil, false, false},
		{"flag", "--log-level info x", nil, true, false},
		{"variable", "x", map[string]string{"JORC_LOG_LEVEL": "info", "JORC_LOG_JSON": "1"}, true, true},
		{"flags win", "--log-level=warn --log-json=false x", map[string]string{"JORC_LOG_LEVEL": "info", "JORC_LOG_JSON": "1"}, false, false},
	} {
		var stdout, stderr bytes.Buffer
		env := newEnvironment(testHost(test.environ, &stdout, &stderr))
		app := &cli.App{Flags: globalFlags(settings()), Action: func(c *cli.Context) error {
			logger, err := env.commandLogger(c, "warn")
			if err != nil {
				return err
			}
			logger.Info("said", "a", 1)
			logger.Warn("told", "b", 2)
			settings, err := env.config(c)
			if err != nil {
				return err
			}
			if settings.LogJSON != test.json || (settings.LogLevel == "info") == (test.name == "flags win") {
				t.Errorf("%s: configuration has level %q, json %v", test.name, settings.LogLevel, settings.LogJSON)
			}
			return nil
		}}
		if err := app.RunContext(t.Context(), append([]string{"jorc"}, strings.Fields(test.args)...)); err != nil {
			t.Fatal(err)
		}
		log := stderr.String()
		if strings.Contains(log, "said") != test.info || !strings.Contains(log, "told") {
			t.Errorf("%s: got %s", test.name, log)
		}
		if json.Valid([]byte(strings.SplitAfter(log, "\n")[0])) != test.json {
			t.Errorf("%s: got %s, want JSON %v", test.name, log, test.json)
		}
	}
}

func TestLogLevelIsChecked(t *testing.T) {
	t.Parallel()
	want := result{exitUsage, "", "jorc: --log-level is \"loud\", but must be one of trace, debug, info, warn, error or off; see 'jorc config validate --help'\n"}
	if got := jorc(t, nil, "--log-level", "loud", "config", "validate", t.TempDir()); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// exampleApp has each kind of command: with arguments and a COMMAND, with
// commands below, with both.
func exampleApp() *cli.App {
	run := func(*cli.Context) error { return nil }
	return &cli.App{
		Name: "jorc",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}},
			&cli.StringFlag{Name: "http-addr"},
			&cli.BoolFlag{Name: "log-json"},
		},
		Commands: []*cli.Command{
			{Name: "wait", ArgsUsage: "TARGET…", Action: run, Flags: []cli.Flag{
				&cli.DurationFlag{Name: "timeout"}, &cli.BoolFlag{Name: "any"}, &cli.StringSliceFlag{Name: "role"},
			}},
			{Name: "service", Subcommands: []*cli.Command{
				{Name: "list", Aliases: []string{"ls"}, Action: run, Flags: []cli.Flag{&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}}}},
			}},
			{Name: "view", ArgsUsage: "[NODE]", Action: run, Subcommands: []*cli.Command{{Name: "aggregate", Action: run}}},
		},
	}
}

func TestArrange(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, args, want string }{
		{"nothing", "", ""},
		{"flags after arguments", "wait web=3 --timeout 5s", "wait --timeout=5s -- web=3"},
		{"flags between", "wait web --any db --timeout=5s", "wait --any --timeout=5s -- web db"},
		{"global flag behind", "wait web -o json", "--output=json wait -- web"},
		{"global flag between commands", "service --http-addr :1 list", "--http-addr=:1 service list"},
		{"everything behind -- stays", "wait web -o json -- sh -c x -o y -- z", "--output=json wait -- web -- sh -c x -o y -- z"},
		{"nothing before --", "wait -- sh --any", "wait -- -- sh --any"},
		{"-- at the end", "wait web --", "wait -- web --"},
		{"boolean with a value", "wait --any=false web", "wait --any=false -- web"},
		{"boolean takes no argument", "wait --any web", "wait --any -- web"},
		{"one dash, as Consul writes it", "-http-addr=:1 wait web -timeout 5s", "--http-addr=:1 wait --timeout=5s -- web"},
		{"short with value", "wait -ojson web", "--output=json wait -- web"},
		{"short with value and =", "wait -oa=b web", "--output=a=b wait -- web"},
		{"alias of a command", "service ls -f", "service list --follow"},
		{"value with a dash", "wait --timeout -5s web", "wait --timeout=-5s -- web"},
		{"value with =", "wait --role a=b web", "wait --role=a=b -- web"},
		{"empty value", "wait --role= web", "wait --role= -- web"},
		{"given twice", "wait --role a --role b web", "wait --role=a --role=b -- web"},
		{"standard input and numbers are arguments", "wait - -1", "wait -- - -1"},
		{"a PEM file is an argument", "wait -----BEGIN --any", "wait --any -- -----BEGIN"},
		{"an argument named like a command", "wait list help", "wait -- list help"},
		{"command with both", "view aggregate", "view aggregate"},
		{"command with both, argument", "view node1", "view -- node1"},
		{"help", "help service list", "service list --help"},
		{"help alone", "help", "--help"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := arrange(exampleApp(), strings.Fields(test.args))
			if err != nil {
				t.Fatal(err)
			}
			if want := strings.Fields(test.want); !slices.Equal(got, want) {
				t.Errorf("arrange(%s)\ngot  %q\nwant %q", test.args, got, want)
			}
		})
	}
}

func TestArrangeErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, args, want string }{
		{"flag before its command", "--timeout 5s wait web", "unknown flag --timeout: it belongs after its command: jorc wait --timeout; see 'jorc --help'"},
		{"flag of another command", "service list --any", "unknown flag --any; see 'jorc service list --help'"},
		{"swapped letters", "wait --tiemout 5s", "unknown flag --tiemout, did you mean --timeout?; see 'jorc wait --help'"},
		{"value for short booleans", "service list -ff=true", "-ff takes no value; see 'jorc service list --help'"},
		{"last flag without value", "wait --timeout", "flag --timeout needs a value; see 'jorc wait --help'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := arrange(exampleApp(), strings.Fields(test.args))
			if err == nil || err.Error() != test.want {
				t.Errorf("arrange(%s)\ngot  %v\nwant %s", test.args, err, test.want)
			}
		})
	}
}

// TestSplitDash: an action sees what stood on the command line.
func TestSplitDash(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		line, args, command string
		dashed              bool
	}{
		{"wait web db", "web db", "", false},
		{"wait web -- sh -c x", "web", "sh -c x", true},
		{"wait -- sh -- x", "", "sh -- x", true},
		{"wait web --", "web", "", true},
		{"wait", "", "", false},
	} {
		app := exampleApp()
		ran := false
		app.Commands[0].Action = func(c *cli.Context) error {
			ran = true
			args, command, dashed := splitDash(c)
			if strings.Join(args, " ") != test.args || strings.Join(command, " ") != test.command || dashed != test.dashed {
				t.Errorf("%s: got %q, %q, %v", test.line, args, command, dashed)
			}
			return nil
		}
		line, err := arrange(app, strings.Fields(test.line))
		if err != nil {
			t.Fatal(err)
		}
		if err := app.RunContext(t.Context(), append([]string{"jorc"}, line...)); err != nil || !ran {
			t.Errorf("%s: ran %v, %v", test.line, ran, err)
		}
	}
}

// FuzzArrange: no command line panics, and what stands behind the first "--"
// comes through untouched.
func FuzzArrange(f *testing.F) {
	for _, seed := range []string{
		"wait\nweb=3\n--timeout\n5s\n--\nsh\n-c\nx", "-o\njson\nservice\nls", "help\nhelp\nx", "-\n--\n--",
		"--=\n-=\n---x", "wait\n-oo\n-fa", "view\n-1", "--output=\n=", "wait\n\xff\n-\xff", "service\nlist\n-ff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		got, err := arrange(exampleApp(), args)
		if err != nil {
			return
		}
		if i := slices.Index(args, "--"); i >= 0 && !slices.Contains(got, "--help") {
			rest := args[i:]
			if len(got) < len(rest) || !slices.Equal(got[len(got)-len(rest):], rest) {
				t.Errorf("arrange(%q) = %q: does not end in %q", args, got, rest)
			}
		}
		app := newApp(host{getenv: func(string) string { return "" }})
		_, _ = arrange(app, args)
	})
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
)

func waitCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:      "wait",
		Usage:     "wait for services, then run a command",
		ArgsUsage: "TARGET… [-- COMMAND ARG…]",
		Description: "TARGET is [TAG.]SERVICE[@DC][=N], N instances of a service (1), where the last dot splits tag and service; " +
			"or a full DNS name with a dot at its end, NAME.[=N], N addresses. Ends as soon as all targets are available. " +
			"With -- the process is then replaced by COMMAND, without Consul's and Vault's tokens in its environment. " +
			"Exits 124 at the timeout, 3 when Consul never answered, 5 when the token may not read a service, " +
			"126 or 127 when COMMAND cannot be run or is not found.",
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "for", Value: "functional", DefaultText: "functional",
				Usage: "`LEVEL` that instances must have reached: addressable (registered, whatever their health), " +
					"functional (they answer in Consul's DNS: passing or warning) or reachable (and accept a TCP connection)",
			},
			&cli.BoolFlag{Name: "passing", Usage: "only instances whose checks all pass: no warnings", DisableDefaultText: true},
			&cli.DurationFlag{Name: "timeout", Value: time.Minute, DefaultText: "60s; none with --tries", Usage: "give up after `D`; 0: never"},
			&cli.DurationFlag{Name: "stable", DefaultText: "0s", Usage: "targets must stay available for `D`"},
			&cli.BoolFlag{Name: "any", Usage: "one target is enough", DisableDefaultText: true},
			&cli.BoolFlag{Name: "dns-only", Usage: "use only DNS", DisableDefaultText: true},
			&cli.IntFlag{Name: "tries", DefaultText: "no limit", Usage: "poll `N` times"},
			&cli.DurationFlag{Name: "try-sleep", DefaultText: "0s", Usage: "sleep `D` between tries"},
			&cli.BoolFlag{Name: "pass-token", Usage: "leave tokens in COMMAND's environment", DisableDefaultText: true},
		},
		Action: env.wait,
	}
}

func (e *environment) wait(c *cli.Context) error {
	texts, program, dashed := splitDash(c)
	if dashed && len(program) == 0 {
		return usagef(c, "missing COMMAND after --")
	}
	settings, err := e.config(c)
	if err != nil {
		return err
	}
	needs, err := needsOf(c, texts, settings.Consul.Datacenter)
	if err != nil {
		return err
	}
	options := waitOptions(c)
	if err := options.Check(needs); err != nil {
		return usagef(c, "%s", strings.TrimPrefix(err.Error(), blocker.ErrUsage.Error()+": "))
	}
	b, err := e.blocker(c, settings, options.DNSOnly)
	if err != nil {
		return err
	}
	screen := e.screen()
	begin := time.Now()
	err = b.Wait(c.Context, needs, options, showMissing(screen))
	screen.Clear()
	var late *blocker.TimeoutError
	if errors.As(err, &late) {
		return gaveUp(c, late, time.Since(begin))
	}
	if err != nil || !dashed {
		return err
	}
	return e.become(program, c.Bool("pass-token"))
}

func needsOf(c *cli.Context, texts []string, datacenter string) ([]blocker.Need, error) {
	level, err := catalog.ParseLevel(c.String("for"))
	if err != nil {
		return nil, usagef(c, "--for is %q, but must be one of addressable, functional or reachable", c.String("for"))
	}
	var needs []blocker.Need
	for _, text := range texts {
		t, err := blocker.ParseTarget(text)
		if err != nil {
			return nil, usagef(c, "%v", err)
		}
		if t.Service != "" && t.Datacenter == "" {
			t.Datacenter = datacenter
		}
		needs = append(needs, blocker.Need{Target: t, For: level, Passing: c.Bool("passing")})
	}
	return needs, nil
}

func waitOptions(c *cli.Context) blocker.Options {
	o := blocker.Options{
		Timeout: c.Duration("timeout"), Stable: c.Duration("stable"), Any: c.Bool("any"), DNSOnly: c.Bool("dns-only"),
		Tries: c.Int("tries"), TrySleep: c.Duration("try-sleep"),
	}
	if o.Tries > 0 && !c.IsSet("timeout") {
		o.Timeout = 0
	}
	return o
}

// gaveUp reports, one line per target, what was still missing.
func gaveUp(c *cli.Context, late *blocker.TimeoutError, after time.Duration) error {
	for _, line := range blocker.Lines(late.States) {
		note(c, "timed out after %v: %s", after.Round(10*time.Millisecond), printable(line))
	}
	if !late.Answered() {
		return &exitError{code: exitUnreachable}
	}
	return &exitError{code: exitTimeout}
}

// tokenVariables are kept from programs that jorc turns into.
var tokenVariables = [...]string{
	"CONSUL_HTTP_TOKEN", "CONSUL_HTTP_TOKEN_FILE", "CONSUL_HTTP_AUTH", "CONSUL_TOKEN", "VAULT_TOKEN", "VAULT_TOKEN_FILE",
}

// become replaces this process by a program; it returns only when that fails.
// Unlike a child's, the program's environment keeps systemd's sockets: it is
// the unit's main process from here on.
func (e *environment) become(program []string, passToken bool) error {
	environ := e.environ()
	if !passToken {
		environ = withoutTokens(environ)
	}
	path, err := exec.LookPath(program[0])
	if err == nil {
		err = e.exec(path, program, environ)
	}
	if err == nil {
		return nil // only a test's exec comes back
	}
	code := exitCannotRun
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	var lookup *exec.Error
	if errors.As(err, &lookup) {
		err = lookup.Err
	}
	return &exitError{code: code, err: fmt.Errorf("run %s: %w", program[0], err)}
}

func withoutTokens(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(tokenVariables[:], name)
	})
}

// blocker makes a Blocker; with dnsOnly one without the HTTP API.
func (e *environment) blocker(c *cli.Context, settings *config.Config, dnsOnly bool) (*blocker.Blocker, error) {
	dns, err := catalog.NewResolver(settings.DNS.Addr)
	if err != nil || dnsOnly {
		return blocker.New(dns, nil), err
	}
	client, _, err := e.consul(c)
	if err != nil {
		return nil, err
	}
	return blocker.New(dns, blocker.FromClient(client)), nil
}

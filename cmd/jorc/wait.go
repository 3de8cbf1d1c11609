package main

import (
	"errors"
	"fmt"
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
	b, closeClient, err := waiter(settings, options.DNSOnly)
	if err != nil {
		return err
	}
	defer closeClient()
	screen := e.screen()
	begin := time.Now()
	err = b.Wait(c.Context, needs, options, screen.draw)
	screen.clear()
	var late *blocker.TimeoutError
	if errors.As(err, &late) {
		return e.gaveUp(late, time.Since(begin))
	}
	if err != nil || !dashed {
		return err
	}
	return e.become(program, c.Bool("pass-token"))
}

func needsOf(c *cli.Context, texts []string, datacenter string) ([]blocker.Need, error) {
	if len(texts) == 0 {
		return nil, usagef(c, "what to wait for?")
	}
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

// waiter makes a Blocker; with dnsOnly one that has no HTTP API.
func waiter(settings *config.Config, dnsOnly bool) (b *blocker.Blocker, closeClient func(), err error) {
	dns, err := catalog.NewResolver(settings.DNS.Addr)
	if err != nil {
		return nil, nil, err
	}
	if dnsOnly {
		return blocker.New(dns, nil), func() {}, nil
	}
	client, err := newClient(settings)
	if err != nil {
		return nil, nil, err
	}
	return blocker.New(dns, blocker.FromClient(client)), client.Close, nil
}

// gaveUp says, one line per target, what was still missing.
func (e *environment) gaveUp(late *blocker.TimeoutError, after time.Duration) error {
	for _, line := range blocker.Lines(late.States) {
		fmt.Fprintf(e.stderr, "jorc: timed out after %v: %s\n", after.Round(10*time.Millisecond), printable(line))
	}
	if !late.Answered() {
		return &exitError{code: exitUnreachable}
	}
	return &exitError{code: exitTimeout}
}

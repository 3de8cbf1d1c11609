package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
)

func failuresCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "failures", Usage: "list failed states of hosts and failing health checks",
		Description: "Exits 1 when there are any.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "hosts", Usage: "only the names of the hosts, one per line", DisableDefaultText: true},
			&cli.BoolFlag{Name: "warnings", Usage: "also warnings, and hosts that are suspect: they passed, but not at the first attempt", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error { return env.listFailures(c, c.Bool("warnings")) },
	}
}

func (e *environment) listStatus(c *cli.Context) error {
	args := arguments(c)
	if len(args) > 1 {
		return usagef(c, "one host at a time")
	}
	if _, err := e.format(c); err != nil {
		return err
	}
	ledger, client, _, err := e.ledger(c)
	if err != nil {
		return err
	}
	defer client.Close()
	host := strings.Join(args, "")
	var s cluster.State
	if host == "" {
		s, err = ledger.LoadReports(c.Context)
	} else {
		s, err = ledger.LoadReport(c.Context, host)
	}
	all, unreadable := s.HostStates()
	if err == nil && host != "" && len(all) == 0 {
		err = ledger.CheckHost(c.Context, host)
	}
	if err != nil {
		return err
	}
	for _, err := range unreadable {
		fmt.Fprintf(c.App.ErrWriter, "jorc: %v\n", err)
	}
	l := listing{columns: []string{"host", "category", "state", "since", "version", "detail", "log"}, states: []string{"state"}}
	for _, s := range all {
		l.rows = append(l.rows, []string{s.Host, s.Category, s.State, when(s.Since), s.Version, stateDetail(s), s.LogURL})
	}
	return e.print(c, l, all)
}

func (e *environment) listFailures(c *cli.Context, warnings bool) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if _, err := e.format(c); err != nil {
		return err
	}
	ledger, client, _, err := e.ledger(c)
	if err != nil {
		return err
	}
	defer client.Close()
	all, err := ledger.Failures(c.Context, warnings)
	if err != nil {
		return err
	}
	err = e.printFailures(c, append([]cluster.Failure{}, all...))
	if err == nil && len(all) > 0 {
		err = &exitError{code: exitFailed}
	}
	return err
}

func (e *environment) printFailures(c *cli.Context, all []cluster.Failure) error {
	if c.Bool("hosts") {
		hosts := []string{}
		for _, f := range all {
			hosts = append(hosts, f.Host)
		}
		hosts = slices.Compact(hosts) // they are in order
		return e.lines(c, "host", hosts, hosts)
	}
	if format, _ := e.value(c, "output"); len(all) == 0 && format != formatJSON {
		return nil // no output means no failure
	}
	l := listing{columns: []string{"host", "kind", "name", "state", "service", "version", "since", "detail", "log"}, states: []string{"state"}}
	for _, f := range all {
		detail := cluster.Brief(f.Detail)
		if f.Kind == cluster.FailureCheck { // whose first line says what is wrong
			detail, _, _ = strings.Cut(f.Detail, "\n")
		}
		l.rows = append(l.rows, []string{f.Host, f.Kind, f.Name, f.State, f.Service, f.Version, when(f.Since), detail, f.LogURL})
	}
	return e.print(c, l, all)
}

func (e *environment) listUnaccounted(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	ttl, err := reportTTL(c)
	if err != nil {
		return err
	}
	ledger, client, _, err := e.ledger(c)
	if err != nil {
		return err
	}
	defer client.Close()
	all, err := ledger.Unaccounted(c.Context, ttl)
	if err != nil {
		return err
	}
	l := listing{columns: []string{"host", "reasons"}}
	for _, u := range all {
		l.rows = append(l.rows, []string{u.Host, strings.Join(u.Reasons, "; ")})
	}
	if len(all) > 0 || format == formatJSON { // no output means no failure
		if err := e.print(c, l, all); err != nil {
			return err
		}
	}
	if len(all) > 0 {
		return &exitError{code: exitFailed}
	}
	return nil
}

// reportTTL reads --ttl.
func reportTTL(c *cli.Context) (map[string]time.Duration, error) {
	ttl := cluster.DefaultReportTTL()
	for _, text := range c.StringSlice("ttl") {
		category, age, ok := strings.Cut(text, "=")
		d, err := time.ParseDuration(age)
		if !ok || err != nil || d < 0 || cluster.CheckCategory(category) != nil {
			return nil, usagef(c, "--ttl is %q, but must be CATEGORY=DURATION, such as config=24h", text)
		}
		if ttl[category] = d; d == 0 {
			delete(ttl, category)
		}
	}
	return ttl, nil
}

// when is a time in a listing; empty when it is not known.
func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// stateDetail is what a state is about, in one line, and why it is doubtful.
func stateDetail(s cluster.HostState) string {
	detail := cluster.Brief(s.Detail)
	if s.Suspect == "" {
		return detail
	}
	if detail != "" {
		detail += "; "
	}
	return detail + "suspect: " + s.Suspect
}

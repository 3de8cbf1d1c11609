package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/text"
)

func statusCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "states of hosts: provisioned, config, validation and your own categories",
		Description: "Without a command: this host, as its agent says: convergence, the open grant, stages in which it waits for a grant or failed, services, templates, processes, triggers, certificates and tokens that end soon, and what it orchestrates, " +
			"each with its state, since when, and why. Exits 1 when something needs an operator, such as a failure or that no orchestrator runs while the host waits for one, or when no agent answers. JSON is the answer of /v1/status.",
		Action: env.checked("", env.onLinux("jorc status without a command", env.hostStatus)),
		Subcommands: []*cli.Command{
			{
				Name: "set", Usage: "record the state of a host in a category", ArgsUsage: "CATEGORY STATE|--exit-code N",
				Description: "CATEGORY is provisioned, config, validation or one of your own; STATE is " + joinOr(cluster.States()) + ". " +
					"A host that is provisioned stays so until it is decommissioned. Repeating a state writes at most its time, once in 15 minutes.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "host", Usage: "of `HOST`", DefaultText: "this one"},
					&cli.StringFlag{Name: "detail", Usage: "`TEXT` for people: what failed, what the host waits for"},
					&cli.IntFlag{Name: "exit-code", Usage: "the state that exit code `N` of Puppet stands for: 0 and 2 are success", DefaultText: "none"},
				},
				Action: env.setStatus,
			},
			{
				Name: "list", Usage: "list states", ArgsUsage: "[HOST]",
				Description: "Of HOST, or of all hosts.",
				Action:      env.onCluster(env.listStatus),
			},
			failuresCommand(env),
			{
				Name: "unaccounted", Usage: "list provisioned hosts that do not report as expected",
				Description: "Hosts that are not members of the cluster, run no version, are down, or whose jorc agent is down. A host without a jorc agent is " +
					"also listed when its last report of a category is older than --ttl allows; repeated reports count to 15 minutes. puppet and puppet_service are reports of config, validation_service of validation. Exits 1 when there are any.",
				Flags: []cli.Flag{&cli.StringSliceFlag{
					Name: "ttl", Usage: "`CATEGORY=DURATION`: how old a report of a host without a jorc agent may be; 0: any age (default: config=24h, validation=1h)",
				}},
				Action: env.listUnaccounted,
			},
			{
				Name: "decommission", Usage: "remove a host: its reports, membership, slots", ArgsUsage: "HOST",
				Description: "Refuses a host that is alive unless --yes is given. Repeating it is not an error. " +
					"Prints what was removed.",
				Flags:  []cli.Flag{&cli.BoolFlag{Name: "yes", Usage: "also when the host is alive", DisableDefaultText: true}},
				Action: env.onCluster(env.decommission),
			},
			{
				Name: "repair", Usage: "correct index keys written by others",
				Description: "The documents nodes/<node> are the truth. Lists the hosts whose index keys were corrected.",
				Action:      env.onCluster(env.repairStatus),
			},
		},
	}
}

func (e *environment) setStatus(c *cli.Context) error {
	args := arguments(c)
	var s cluster.CategoryState
	switch {
	case len(args) == 1 && c.IsSet("exit-code"):
		s = cluster.StateOfPuppet(c.Int("exit-code"))
	case len(args) == 2 && !c.IsSet("exit-code"):
		s.State = args[1]
	default:
		return usagef(c, "missing arguments: CATEGORY, and STATE or --exit-code")
	}
	if c.IsSet("host") && c.String("host") == "" {
		return usagef(c, "--host must not be empty")
	}
	if c.IsSet("detail") {
		s.Detail = c.String("detail")
	}
	if err := e.warnCategory(c, args[0]); err != nil {
		return err
	}
	return e.recordState(c, c.String("host"), args[0], s)
}

// warnCategory warns about a category of the user's own that is close to a built-in
// one, or the name of a host.
func (e *environment) warnCategory(c *cli.Context, category string) error {
	builtin := []string{cluster.CategoryProvisioned, cluster.CategoryConfig, cluster.CategoryValidation}
	if slices.Contains(builtin, category) || cluster.CheckCategory(category) != nil {
		return nil
	}
	if near := text.Closest(category, builtin); near != "" {
		note(c, "warning: category %q is a new one, did you mean %q?", category, near)
		return nil
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	if isHost, err := cl.HasHost(c.Context, category); err == nil && isHost {
		note(c, "warning: category %q is the name of a host: its state is set by 'jorc status set CATEGORY STATE --host %s'", category, category)
	}
	return nil
}

// recordState records the state of host, or of this one.
func (e *environment) recordState(c *cli.Context, host, category string, s cluster.CategoryState) error {
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	if err := cluster.CheckState(category, s.State); err != nil {
		return err
	}
	if host, err = e.hostNamed(c, cl, host); err != nil {
		return err
	}
	_, err = cl.SetState(c.Context, host, category, s)
	return err
}

func (e *environment) decommission(c *cli.Context, cl *target) error {
	host := argument(c, 0)
	d, err := cl.DecommissionHost(c.Context, host, c.Bool("yes"))
	if errors.Is(err, cluster.ErrAlive) {
		return fmt.Errorf("%w; --yes decommissions it all the same", err)
	}
	if err != nil {
		return err
	}
	if d.CatalogErr != nil {
		note(c, "%s stays in Consul's catalog until Consul reaps it: %v", host, d.CatalogErr)
	}
	l := rowsOf("removed,what")
	add := func(what string, names ...string) {
		for _, name := range names {
			l.rows = append(l.rows, []string{what, name})
		}
	}
	for _, removed := range []struct {
		is   bool
		what string
	}{{d.Member, "member"}, {d.Hold, "hold"}, {d.Catalog, "node"}} {
		if removed.is {
			add(removed.what, host)
		}
	}
	add("key", d.Keys...)
	add("slot", d.Slots...)
	if !d.Member && !d.Hold && len(d.Keys)+len(d.Slots) == 0 && !d.Catalog {
		noteUnknownHost(c, cl, host)
	}
	return e.print(c, l, d)
}

func (e *environment) repairStatus(c *cli.Context, cl *target) error {
	r, err := cl.Repair(c.Context)
	if err != nil {
		return err
	}
	for _, host := range r.Orphans {
		note(c, "host %s has index keys and never reported to jorc: left unchanged", printable(host))
	}
	for _, key := range r.Strange {
		note(c, "key %s has no meaning: left unchanged", printable(key))
	}
	return e.lines(c, "host", r.Fixed, r)
}

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

func (e *environment) listStatus(c *cli.Context, cl *target) error {
	host := argument(c, 0)
	var s cluster.State
	var err error
	if host == "" {
		s, err = cl.LoadReports(c.Context)
	} else {
		s, err = cl.LoadReport(c.Context, host)
	}
	all, unreadable := s.HostStates()
	if err == nil && host != "" && len(all) == 0 {
		err = cl.CheckHost(c.Context, host)
	}
	if err != nil {
		return err
	}
	for _, err := range unreadable {
		note(c, "%v", err)
	}
	return e.print(c, listingOf("host,category,state*,since,version,detail,log", all, func(s cluster.HostState) []string {
		return []string{s.Host, s.Category, s.State, when(s.Since), s.Version, stateDetail(s), s.LogURL}
	}), all)
}

func (e *environment) listFailures(c *cli.Context, warnings bool) error {
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	all, err := cl.Failures(c.Context, warnings)
	if err != nil {
		return err
	}
	if c.Bool("hosts") {
		hosts := []string{}
		for _, f := range all {
			hosts = append(hosts, f.Host)
		}
		hosts = slices.Compact(hosts) // they are in order
		err = e.lines(c, "host", hosts, hosts)
	} else {
		err = e.printProblems(c, failureListing(all), append([]cluster.Failure{}, all...))
	}
	if err != nil {
		return err
	}
	return answerOf(len(all) == 0)
}

func (e *environment) listUnaccounted(c *cli.Context) error {
	ttl, err := reportTTL(c)
	if err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	all, err := cl.Unaccounted(c.Context, ttl)
	if err != nil {
		return err
	}
	l := listingOf("host,reasons", all, func(u cluster.Unaccounted) []string { return []string{u.Host, strings.Join(u.Reasons, "; ")} })
	if err := e.printProblems(c, l, all); err != nil {
		return err
	}
	return answerOf(len(all) == 0)
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

// stateDetail is what a state is about, in one line, and why it is doubtful.
func stateDetail(s cluster.HostState) string {
	detail := cluster.Brief(s.Detail)
	switch {
	case s.Suspect == "":
		return detail
	case detail == "":
		return "suspect: " + s.Suspect
	}
	return detail + "; suspect: " + s.Suspect
}

func failureListing(all []cluster.Failure) listing {
	return listingOf("host,kind,name,state*,service,version,since,detail,log", all, func(f cluster.Failure) []string {
		detail := cluster.Brief(f.Detail)
		if f.Kind == cluster.FailureCheck { // the first line of a check's output is its reason
			detail, _, _ = strings.Cut(f.Detail, "\n")
		}
		return []string{f.Host, f.Kind, f.Name, f.State, f.Service, f.Version, when(f.Since), detail, f.LogURL}
	})
}

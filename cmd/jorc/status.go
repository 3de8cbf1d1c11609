package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/text"
)

func statusCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "states of hosts: provisioned, config, validation and your own categories",
		Subcommands: []*cli.Command{
			{
				Name: "set", Usage: "record the state of a host in a category", ArgsUsage: "CATEGORY STATE|--exit-code N",
				Description: "CATEGORY is provisioned, config, validation or one of your own; STATE is " + joinOr(cluster.States()) + ". " +
					"A host that is provisioned stays so until it is decommissioned. Repeating a state writes nothing.",
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
				Action:      env.listStatus,
			},
			failuresCommand(env),
			{
				Name: "unaccounted", Usage: "list provisioned hosts that do not report as expected",
				Description: "Hosts that are not members of the cluster, run no version, are down, or whose jorc agent is down. A host without a jorc agent is " +
					"also listed when its last report of a category is older than --ttl allows. Exits 1 when there are any.",
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
				Action: env.decommission,
			},
			{
				Name: "repair", Usage: "correct index keys written by others",
				Description: "The documents nodes/<node> are the truth. Lists the hosts whose index keys were corrected.",
				Action:      env.repairStatus,
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
		fmt.Fprintf(c.App.ErrWriter, "jorc: warning: category %q is a new one, did you mean %q?\n", category, near)
		return nil
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	if isHost, err := cl.HasHost(c.Context, category); err == nil && isHost {
		fmt.Fprintf(c.App.ErrWriter, "jorc: warning: category %q is the name of a host: its state is set by 'jorc status set CATEGORY STATE --host %s'\n", category, category)
	}
	return nil
}

// recordState records the state of host, or of this one.
func (e *environment) recordState(c *cli.Context, host, category string, s cluster.CategoryState) error {
	ledger, client, settings, err := e.ledger(c)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := cluster.CheckState(category, s.State); err != nil {
		return err
	}
	if host, err = hostNamed(c, client, settings, host); err != nil {
		return err
	}
	_, err = ledger.SetState(c.Context, host, category, s)
	return err
}

func (e *environment) decommission(c *cli.Context) error {
	args := arguments(c)
	if len(args) != 1 {
		return usagef(c, "missing argument HOST")
	}
	if _, err := e.format(c); err != nil {
		return err
	}
	ledger, client, settings, err := e.ledger(c)
	if err != nil {
		return err
	}
	defer client.Close()
	host, force := args[0], c.Bool("yes")
	if err := cluster.CheckNode(host); err != nil {
		return err
	}
	if !force {
		err := ledger.CheckDeparted(c.Context, host)
		if errors.Is(err, cluster.ErrAlive) {
			err = fmt.Errorf("%w; --yes decommissions it all the same", err)
		}
		if err != nil {
			return err
		}
	}
	members := cluster.New(client, settings.Prefix, settings.Cluster)
	left, err := members.Leave(c.Context, host, force)
	if err != nil {
		return err
	}
	freed, err := members.ForgetHold(c.Context, host)
	if err != nil {
		return err
	}
	keys, slots, err := ledger.Decommission(c.Context, host)
	if err != nil {
		return err
	}
	if !left && !freed && len(keys)+len(slots) == 0 {
		if text := unknownHost(c, members, host); text != "" {
			fmt.Fprintf(c.App.ErrWriter, "jorc: %s\n", text)
		}
	}
	answer := decommissioned{Host: host, Member: left, Hold: freed, Keys: append([]string{}, keys...), Slots: append([]string{}, slots...)}
	if answer.Catalog, err = strike(c.Context, client, ledger, host); err != nil {
		fmt.Fprintf(e.stderr, "jorc: %s stays in Consul's catalog until Consul reaps it: %v\n", host, err)
	}
	return e.print(c, answer.listing(), answer)
}

// strike takes a dead host out of Consul's catalog, which otherwise keeps it for
// three days. A living one would only come back.
func strike(ctx context.Context, client *consul.Client, ledger *cluster.Cluster, host string) (bool, error) {
	if err := ledger.CheckDeparted(ctx, host); errors.Is(err, cluster.ErrAlive) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	there, _, err := client.CatalogNode(ctx, host, consul.Query{})
	if err != nil || there == nil {
		return false, err
	}
	return true, client.CatalogDeregister(ctx, &consul.CatalogDeregister{Node: host})
}

// decommissioned is what `status decommission` removed.
type decommissioned struct {
	Host   string   `json:"host"`
	Member bool     `json:"member"`
	Hold   bool     `json:"hold"` // it was held; a host of its name is not
	Keys   []string `json:"keys"`
	Slots  []string `json:"slots"`
	// Catalog: it was taken out of Consul's catalog.
	Catalog bool `json:"catalog"`
}

func (d decommissioned) listing() listing {
	l := listing{columns: []string{"removed", "what"}}
	if d.Member {
		l.rows = append(l.rows, []string{"member", d.Host})
	}
	if d.Hold {
		l.rows = append(l.rows, []string{"hold", d.Host})
	}
	if d.Catalog {
		l.rows = append(l.rows, []string{"node", d.Host})
	}
	for _, k := range d.Keys {
		l.rows = append(l.rows, []string{"key", k})
	}
	for _, s := range d.Slots {
		l.rows = append(l.rows, []string{"slot", s})
	}
	return l
}

func (e *environment) repairStatus(c *cli.Context) error {
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
	r, err := ledger.Repair(c.Context)
	if err != nil {
		return err
	}
	for _, host := range r.Orphans {
		fmt.Fprintf(c.App.ErrWriter, "jorc: host %s has index keys and never reported to jorc: left unchanged\n", printable(host))
	}
	for _, key := range r.Strange {
		fmt.Fprintf(c.App.ErrWriter, "jorc: key %s has no meaning: left unchanged\n", printable(key))
	}
	return e.lines(c, "host", r.Fixed, r)
}

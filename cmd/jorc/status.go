package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
)

func statusCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "states of hosts: what was provisioned, configured and validated, and what failed",
		Subcommands: []*cli.Command{
			{
				Name: "set", Usage: "record the state of a host in a category", ArgsUsage: "CATEGORY STATE|--exit-code N",
				Description: "CATEGORY is provisioned, config, validation or one of your own; STATE is " + joinOr(cluster.States()) + ". " +
					"A host that is provisioned stays so until it is decommissioned. Repeating a state writes nothing.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "host", Usage: "of `HOST`", DefaultText: "this one"},
					&cli.StringFlag{Name: "detail", Usage: "`TEXT` for people: what failed, what is waited for"},
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
				Name: "unaccounted", Usage: "list hosts that were provisioned and do not do their part",
				Description: "Hosts that are no member of the cluster, run no version, are down, or whose jorc agent is down. A host without a jorc agent is " +
					"also listed when its last report of a category is older than --ttl allows. Exits 1 when there are any.",
				Flags: []cli.Flag{&cli.StringSliceFlag{
					Name: "ttl", Usage: "`CATEGORY=DURATION`: how old a report of a host without a jorc agent may be; 0: any age (default: config=24h, validation=1h)",
				}},
				Action: env.listUnaccounted,
			},
			{
				Name: "decommission", Usage: "remove every trace of a host", ArgsUsage: "HOST",
				Description: "Its reports, its membership, its slots. Refuses a host that is alive without --yes. Repeating it is no failure. " +
					"Prints what was removed.",
				Flags:  []cli.Flag{&cli.BoolFlag{Name: "yes", Usage: "also when the host is alive", DisableDefaultText: true}},
				Action: env.decommission,
			},
			{
				Name: "repair", Usage: "put right index keys that somebody else wrote",
				Description: "The documents nodes/<node> are the truth; hosts put their own keys right with each report. Lists the hosts whose keys were not right.",
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
		return usagef(c, "which category, and which state or --exit-code?")
	}
	if c.IsSet("host") && c.String("host") == "" {
		return usagef(c, "--host is empty: of which host?")
	}
	if c.IsSet("detail") {
		s.Detail = c.String("detail")
	}
	return e.recordState(c, c.String("host"), args[0], s)
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
		return usagef(c, "which host?")
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
		fmt.Fprintf(e.stderr, "jorc: %s is still in Consul's catalog until Consul reaps it: %v\n", host, err)
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
		fmt.Fprintf(c.App.ErrWriter, "jorc: host %s has index keys and never reported to jorc: left as they are\n", printable(host))
	}
	for _, key := range r.Strange {
		fmt.Fprintf(c.App.ErrWriter, "jorc: key %s stands for nothing: left as it is\n", printable(key))
	}
	return e.lines(c, "host", r.Fixed, r)
}

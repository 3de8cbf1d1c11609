package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
)

func leaderCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "leader",
		Usage: "show or elect leaders",
		Description: "Prints one leader per line; exits 1 if there is none. With --elect, eligible members fill vacancies at random, healthy ones first; leaders stay. " +
			"The param cluster/leader-eligible of a member, of its roles or of the cluster makes members eligible or not; by default all are but managers " +
			"and members that the param cluster/filter leaves out. " +
			"A failing leader is watched if a healthy member could lead, and replaced after failing for --grace without a break. " +
			"The members' agents do the same on their own. " +
			"With --self it prints nothing: it exits 0 if this host (or --node) leads, 1 if it does not, and 2 or more if that is not known.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "elect", Usage: "fill vacancies now", DisableDefaultText: true},
			&cli.DurationFlag{Name: "grace", Usage: "with --elect: wait for `D` for a failing leader to recover; 0 does not wait and replaces none", DefaultText: "param cluster/leader-grace, or 30s"},
			&cli.IntFlag{Name: "count", Usage: "set the number of leaders to `N`", DefaultText: "unchanged"},
			&cli.BoolFlag{Name: "self", Usage: "report by the exit code whether this host leads", DisableDefaultText: true},
		},
		Action: env.showLeaders,
	}
}

// leading is the answer of `cluster leader -o json`.
type leading struct {
	Leaders  []string `json:"leaders"`
	Count    int      `json:"count"`
	Managers []string `json:"managers"`
	Retired  []string `json:"retired"` // led until now, and may not know yet that they no longer do
}

func (e *environment) showLeaders(c *cli.Context) error {
	if err := none(c); err != nil {
		return err
	}
	if n := c.Int("count"); c.IsSet("count") && (n < 1 || n > cluster.MaxLeaders) {
		return usagef(c, "--count is %d, but must be 1 to %d", n, cluster.MaxLeaders)
	}
	if g := c.Duration("grace"); c.IsSet("grace") && (g < 0 || !c.Bool("elect")) {
		return usagef(c, "--grace needs --elect and must not be negative")
	}
	if c.Bool("self") {
		if c.IsSet("count") || c.Bool("elect") {
			return usagef(c, "--self excludes --elect and --count")
		}
		return e.leadsItself(c)
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	l, err := e.elect(c, cl)
	if err != nil {
		return err
	}
	answer := leading{Leaders: append([]string{}, l.Leader...), Count: l.Count, Managers: append([]string{}, l.Manager...), Retired: []string{}}
	for _, r := range l.Retired {
		answer.Retired = append(answer.Retired, r.Node)
	}
	rows := listing{columns: []string{"leader"}}
	for _, node := range l.Leader {
		rows.rows = append(rows.rows, []string{node})
	}
	format, err := e.format(c)
	switch {
	case err != nil:
		return err
	case format == formatJSON:
		err = e.writeJSON(c.App.Writer, answer)
	default:
		err = rows.writePlain(c.App.Writer) // a line per leader is the promise
	}
	if err == nil && len(l.Leader) == 0 {
		if len(answer.Retired) > 0 {
			fmt.Fprintf(c.App.ErrWriter, "jorc: %s led until now and may not have noticed yet: try again in a few seconds\n", strings.Join(answer.Retired, ", "))
		}
		return &exitError{code: exitFailed}
	}
	return err
}

// leadsItself reports by its exit code whether this host leads. No other error has
// the exit code 1.
func (e *environment) leadsItself(c *cli.Context) error {
	leads, err := e.leads(c)
	switch {
	case err != nil && classify(err) == exitFailed:
		return &exitError{code: exitUsage, err: err}
	case err != nil || leads:
		return err
	}
	return &exitError{code: exitFailed}
}

func (e *environment) leads(c *cli.Context) (bool, error) {
	cl, err := e.cluster(c, "")
	if err != nil {
		return false, err
	}
	node, err := e.ownNode(c)
	if err != nil {
		return false, err
	}
	if _, err := cl.Profile(c.Context); err != nil {
		return false, err
	}
	l, err := cl.Leaders(c.Context)
	return l.Leads(node), err
}

// elect does what the flags ask for and returns the leaders afterwards.
func (e *environment) elect(c *cli.Context, cl *cluster.Cluster) (cluster.Leaders, error) {
	if !c.IsSet("count") && !c.Bool("elect") {
		return cl.Leaders(c.Context)
	}
	if _, err := cl.Profile(c.Context); err != nil {
		return cluster.Leaders{}, err
	}
	if c.IsSet("count") {
		if err := cl.SetCount(c.Context, c.Int("count")); err != nil {
			return cluster.Leaders{}, err
		}
	}
	grace := c.Duration("grace")
	if !c.Bool("elect") || c.IsSet("grace") && grace == 0 {
		return cl.Elect(c.Context)
	}
	if !c.IsSet("grace") {
		var err error
		if grace, err = cl.LeaderGracePeriod(c.Context); err != nil {
			return cluster.Leaders{}, err
		}
	}
	// The place of a retired leader stays empty for as long as always.
	timing := cluster.Timing{Replace: grace}
	return cl.ElectAndWait(c.Context, timing, func(failing, retired []string) {
		for _, node := range failing {
			fmt.Fprintf(c.App.ErrWriter, "jorc: leader %s is failing: replaced if it has not recovered in %s\n", node, grace)
		}
		for _, node := range retired {
			fmt.Fprintf(c.App.ErrWriter, "jorc: %s led until now and may not have noticed yet: its place is filled in a few seconds\n", node)
		}
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/budget"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

func budgetCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "budget", Usage: "show or set how many hosts may be out of service at the same time",
		Description: "A budget counts hosts that are out of service for whatever reason: down, critical, in maintenance, or updated by jorc. " +
			"With a budget no host begins a version without a grant, also where the version has no policy. Without a subcommand: show.",
		Action: env.showBudget,
		Subcommands: []*cli.Command{
			{Name: "show", Usage: "show the budget, the hosts that are out of service, and what waits for a place", Action: env.showBudget},
			{
				Name: "set", Usage: "set the budget, in place of the one before",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "max-out", Usage: "`N|P%` hosts of the cluster may be out of service at the same time"},
					&cli.StringSliceFlag{Name: "role", Usage: "`ROLE=N|P%`: so many of the members with a role; may be repeated"},
					&cli.IntFlag{Name: "zones", Usage: "jorc takes out hosts of at most `N` zones at the same time"},
					reasonFlag(),
				},
				Action: env.control("that is the budget already", env.setBudget),
			},
			{
				Name: "clear", Usage: "remove the budget: any number of hosts may be out of service", Flags: []cli.Flag{reasonFlag()},
				Action: env.control("it has no budget", func(c *cli.Context, cl *target, _ cluster.Hold) (bool, error) {
					return cl.SetBudget(c.Context, nil)
				}),
			},
		},
	}
}

func (e *environment) setBudget(c *cli.Context, cl *target, h cluster.Hold) (bool, error) {
	b := &pace.Budget{Zones: c.Int("zones"), Since: h.Since, By: h.By, Reason: h.Reason}
	var err error
	if c.IsSet("max-out") {
		if b.MaxOut, err = pace.ParseAmount(c.String("max-out")); err != nil {
			return false, usagef(c, "--max-out: %v", err)
		}
	}
	if c.IsSet("zones") && b.Zones < 1 {
		return false, usagef(c, "--zones %d: give at least 1", b.Zones)
	}
	for _, text := range c.StringSlice("role") {
		role, amount, _ := strings.Cut(text, "=")
		parsed, err := pace.ParseAmount(amount)
		if role == "" || err != nil {
			return false, usagef(c, "--role %q: give a role and a number or share, such as db=1 or web=10%%", text)
		}
		if b.Roles == nil {
			b.Roles = map[string]pace.Amount{}
		}
		b.Roles[role] = parsed
	}
	if err := b.Check(); err != nil {
		return false, usagef(c, "%v", err)
	}
	for role := range b.Roles {
		if err := cl.CheckRole(c.Context, role); err != nil {
			return false, err
		}
	}
	if orchestrated, err := fleet.Orchestrated(c.Context, cl.Store()); err == nil && !orchestrated {
		note(c, "no orchestrator runs: with a budget no host begins a version until one does")
	}
	return cl.SetBudget(c.Context, b)
}

// budgetShown is the answer of `cluster budget -o json`.
type budgetShown struct {
	Budget  *pace.Budget   `json:"budget"` // null: none
	Limits  []pace.Use     `json:"limits"`
	Out     []pace.Host    `json:"out"`
	Waiting []budget.Waits `json:"waiting"`
	// Alone holds the orchestrator's lock, and no other candidate is up: it is taken out as any
	// other host. Empty: another candidate is, or there is no budget.
	Alone string `json:"alone"`
}

func (e *environment) showBudget(c *cli.Context) error {
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	s, err := cl.Load(c.Context, cluster.NeedState)
	if err != nil {
		return err
	}
	if err := s.Damaged[cluster.KeyControl]; err != nil {
		return err
	}
	rollouts := cl.rollouts()
	stored, err := rollouts.Load(c.Context)
	if err != nil {
		return err
	}
	members, err := rollout.StateOf(&s, stored)
	var filter *cluster.FilterError
	if err != nil && !errors.As(err, &filter) {
		return err
	}
	documents, err := cl.StageDocuments(c.Context)
	if err != nil {
		return err
	}
	active, err := cl.runs().InProgress(c.Context)
	if err != nil {
		return err
	}
	now, read := time.Now(), budget.DocumentsOf(cl.Store(), documents)
	holder, err := budget.Holder(c.Context, cl.Cluster)
	if err != nil {
		return err
	}
	life, err := budget.ReadLife(readLife).Of(c.Context, cl.Cluster, members)
	if err != nil {
		return err
	}
	account := budget.Count(&s, members, read, holder, life, now)
	v := budgetShown{Budget: s.Control.Budget, Limits: append([]pace.Use{}, account.Uses()...), Out: account.Out(), Waiting: budget.Waiting(&s, stored, members, read, active, account, now)}
	if holder, alone := account.Holder(); alone && v.Budget != nil {
		v.Alone = holder
	}
	return e.print(c, rowsOf("what,value", budgetRows(v)...), v)
}

func budgetRows(v budgetShown) [][]string {
	var rows [][]string
	if v.Budget == nil {
		rows = append(rows, []string{"budget", "none: 'jorc cluster budget set --max-out 10%' sets one"})
	} else {
		rows = append(rows, []string{"budget", v.Budget.String()}, []string{"set", setText(v.Budget)})
	}
	for _, u := range v.Limits {
		of := fmt.Sprintf("%d of %d hosts", u.Allowed, u.Hosts)
		switch u.Kind {
		case pace.OfRole:
			of = fmt.Sprintf("%d of %d hosts of role %s", u.Allowed, u.Hosts, u.Name)
		case pace.OfZones:
			of = fmt.Sprintf("hosts of %d of %d zones", u.Allowed, u.Hosts)
		}
		rows = append(rows, []string{"may be out", of + ", out now: " + strconv.Itoa(u.Out)})
	}
	for _, h := range v.Out {
		text := h.Out
		if !h.Since.IsZero() {
			text += " since " + when(h.Since)
		}
		if h.GivenUp {
			text += "; an operator gave up on it: it does not count"
		}
		rows = append(rows, []string{"out", h.Node + ": " + text})
	}
	if v.Alone != "" {
		rows = append(rows, []string{"alone", v.Alone + ": it holds the orchestrator's lock, and no other candidate is up: it is taken out as any other host"})
	}
	for _, w := range v.Waiting {
		rows = append(rows, []string{"waits", fmt.Sprintf("%s (%s): %s", w.Change, strings.Join(w.Nodes, ", "), w.Why)})
	}
	return rows
}

// setText says when and by which author the budget was set.
func setText(b *pace.Budget) string {
	return cluster.Hold{Since: b.Since, By: b.By, Reason: b.Reason}.String()
}

// readLife reads since when hosts are as they are, as the orchestrator saw it. A view that the token
// may not read, or that is damaged, says nothing.
func readLife(ctx context.Context, c *fleet.Cluster) (budget.Life, error) {
	saved, err := orchestrator.ReadView(ctx, c.Store())
	switch {
	case errors.Is(err, consul.ErrDenied), errors.Is(err, kv.ErrDamaged), errors.Is(err, kv.ErrNewer):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return saved.View.Life, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/legacy"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/text"
)

func triggerCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "trigger", Usage: "set the desired version", ArgsUsage: "VERSION",
		Description: "A version is one segment of a key: letters, digits and . - _ + ~ : @ = , but no slash. " +
			"Without a policy all hosts go at once; with any of its flags members go as the orchestrator admits them. " +
			"It supersedes an unfinished rollout and names hosts that are behind, failed or out of service. " +
			"Triggering the same version again changes nothing; with other flags it changes the policy of the running rollout. " +
			"While a rollout with a policy is under way, another version without a policy has to be confirmed on a terminal, or by --yes. " +
			"Exits 1 when a role is unknown or no member is left, or the answer is no.",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "yes", Usage: "let all hosts go at once also while a rollout with a policy is under way", DisableDefaultText: true},
			&cli.BoolFlag{Name: "dry-run", Usage: "print the hosts that would be admitted, step by step, and write nothing", DisableDefaultText: true},
			duringFreezeFlag(), overBudgetFlag(),
			&cli.BoolFlag{
				Name: "require-converged", DisableDefaultText: true,
				Usage: "exit 1 while members are behind the version desired so far, failed, out of service or held, or documents cannot be read",
			},
		}, policyFlags()...),
		Action: env.trigger,
	}
}

func (e *environment) trigger(c *cli.Context) error {
	policy, err := policyOf(c)
	if err != nil {
		return err
	}
	exceptions, err := exceptionsOf(c)
	if err != nil {
		return err
	}
	by, err := e.author(c)
	if err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	q := rollout.Request{Version: argument(c, 0), Policy: policy, By: by, Reason: c.String("reason"), Exceptions: exceptions, DryRun: c.Bool("dry-run"), RequireConverged: c.Bool("require-converged")}
	return e.change(c, cl, q, cl.rollouts().Trigger)
}

func duringFreezeFlag() cli.Flag {
	return &cli.StringFlag{Name: "during-freeze", Usage: "begin although there is a freeze, for `REASON`"}
}

func overBudgetFlag() cli.Flag {
	return &cli.StringFlag{Name: "over-budget", Usage: "take hosts out of service although the budget is used up, for `REASON`"}
}

// exceptionsOf reads duringFreezeFlag and overBudgetFlag.
func exceptionsOf(c *cli.Context) (pace.Exceptions, error) {
	for _, name := range []string{"during-freeze", "over-budget"} {
		if c.IsSet(name) && strings.TrimSpace(c.String(name)) == "" {
			return pace.Exceptions{}, usagef(c, "--%s must give a reason", name)
		}
	}
	return pace.Exceptions{DuringFreeze: c.String("during-freeze"), OverBudget: c.String("over-budget")}, nil
}

func rollbackCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "rollback", Usage: "go back to the version before, without gates and windows",
		Description: "Makes the last version that all members ran without a failure the desired one, with the limits of the rollout that it takes back: " +
			"steps, --max-parallel, --zone-by-zone and --order hold, and the budget of the cluster. " +
			"It passes no gate and no bake, and waits for no consent, window or freeze, unless --with-gates asks for them. " +
			"'jorc update wait' exits 0 then when all members run it; a wait that began before exits 1. " +
			"Exits 1 when that version is not known: --to names one.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "to", Usage: "go back to `VERSION`", DefaultText: "the version before"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print the hosts that would be admitted, step by step, and write nothing", DisableDefaultText: true},
			&cli.BoolFlag{Name: "with-gates", Usage: "pass gates and bakes and wait for consent, windows and freezes, as the policy says", DisableDefaultText: true},
			overBudgetFlag(),
			reasonFlag(),
		},
		Action: env.onCluster(env.rollback),
	}
}

func (e *environment) rollback(c *cli.Context, cl *target) error {
	by, err := e.author(c)
	if err != nil {
		return err
	}
	if c.IsSet("to") && c.String("to") == "" {
		return usagef(c, "--to must not be empty")
	}
	exceptions, err := exceptionsOf(c)
	if err != nil {
		return err
	}
	q := rollout.Request{Version: c.String("to"), By: by, Reason: c.String("reason"), DryRun: c.Bool("dry-run"), Exceptions: exceptions, WithGates: c.Bool("with-gates")}
	return e.change(c, cl, q, func(ctx context.Context, q rollout.Request) (rollout.Triggered, error) {
		return cl.rollouts().Rollback(ctx, q, c.String("reason"))
	})
}

// change makes another version the desired one, says before it writes what stands in the way,
// and prints what changed. The name that existing scripts use prints nothing.
func (e *environment) change(
	c *cli.Context, cl *target, q rollout.Request, change func(context.Context, rollout.Request) (rollout.Triggered, error),
) error {
	dry, quiet := q.DryRun, legacy.Is(c.Command)
	said, confirmed := map[string]bool{}, ""
	say := func(text string) { // once, although another change may come between
		if !said[text] {
			said[text] = true
			note(c, "%s", printable(text))
		}
	}
	announce := func(t rollout.Triggered) (err error) {
		if t.Unpaced() && confirmed != t.Superseded.Version {
			if err := e.confirmUnpaced(c, t, dry, say); err != nil {
				return err
			}
			confirmed = t.Superseded.Version
		}
		if quiet {
			return nil
		}
		orchestrated := true
		if t.Document.Paced() {
			if orchestrated, err = cl.rollouts().Orchestrated(c.Context); err != nil {
				return err
			}
		}
		for _, text := range triggerNotes(t, dry && e.format(c) != formatJSON, orchestrated) {
			say(text)
		}
		return nil
	}
	q.Announce = announce
	t, err := change(c.Context, q)
	switch {
	case errors.Is(err, pace.ErrPolicy):
		return usagef(c, "%v", err)
	case err != nil || quiet:
		return err
	}
	if err := announce(t); err != nil {
		return err
	}
	if dry {
		return e.print(c, planListing(t.Plan), t)
	}
	changed := "no"
	if t.Changed {
		changed = "yes"
	}
	return e.print(c, rowsOf("version,previous,changed", []string{t.Version, t.Previous, changed}), t)
}

// confirmUnpaced asks on a terminal whether a version goes to all members at once
// although a rollout with a policy is running, and says it elsewhere. The names that
// existing scripts use never ask.
func (e *environment) confirmUnpaced(c *cli.Context, t rollout.Triggered, dry bool, say func(string)) error {
	s := t.Superseded
	text := fmt.Sprintf("a rollout of %s is under way (%s): %s has no policy, so all members begin at once", s.Version, s.Policy, t.Version)
	if dry || legacy.Is(c.Command) || c.Bool("yes") || !isTTY(e.stdin) || !isTTY(c.App.ErrWriter) {
		say(text)
		return nil
	}
	fmt.Fprintf(c.App.ErrWriter, "jorc: %s. Continue? [y/N] ", printable(text))
	answer, err := readAnswer(c.Context, e.stdin)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer != "y" && answer != "yes" {
		return &exitError{code: exitFailed, err: fmt.Errorf("%s is not triggered: the answer is no; flags such as --max-parallel give it a policy, and --yes confirms", t.Version)}
	}
	return nil
}

const noOrchestrator = "no orchestrator runs, so no host is offered a grant: start an agent with orchestrator { enabled = true }"

// planListing is what a dry run answers: the hosts that would be admitted if no member fails.
func planListing(steps []pace.Decision) listing {
	l := listing{columns: []string{"step", "what", "hosts", "of"}}
	for i, d := range steps {
		l.rows = append(l.rows, []string{strconv.Itoa(i + 1), d.Text, text.FewOf(", ", d.Nodes, d.Count), d.Reason})
	}
	return l
}

// triggerNotes are hints beside the answer.
func triggerNotes(t rollout.Triggered, dry, orchestrated bool) []string {
	var notes []string
	if s := t.Superseded; s != nil {
		notes = append(notes, fmt.Sprintf("the rollout of %s was unfinished (%s%s) and is superseded: %s", s.Version, s.State, s.TriggeredText(), s))
	}
	if t.Document.Paced() && t.OutText() != "" {
		notes = append(notes, t.OutText()+"; they count as out of service")
	}
	for _, o := range t.Obstacles {
		if t.Document.Paced() || o.Kind == rollout.ObstacleUnreadable {
			notes = append(notes, o.String())
		}
	}
	if t.Note != "" {
		notes = append(notes, t.Note)
	}
	if dry {
		what := "dry run: nothing would change"
		if t.Changed {
			what = fmt.Sprintf("dry run: %s would be desired (%s)", t.Version, t.Document.Policy)
		}
		notes = append(notes, what+"; nothing was written")
		if len(t.Waits) > 0 {
			notes = append(notes, "no host is admitted now: it waits for "+strings.Join(t.Waits, "; "))
		}
	}
	if !orchestrated {
		notes = append(notes, noOrchestrator)
	}
	return notes
}

// policyFlags set how a version reaches the members.
func policyFlags() []cli.Flag {
	const category = "Policy"
	duration := func(name, usage string) cli.Flag {
		return &cli.DurationFlag{Name: name, Usage: usage, DefaultText: "none", Category: category}
	}
	text := func(name, usage, standard string) cli.Flag {
		return &cli.StringFlag{Name: name, Usage: usage, DefaultText: standard, Category: category}
	}
	return []cli.Flag{
		&cli.IntFlag{Name: "canary", Usage: "`N` members come first, on their own", DefaultText: "none", Category: category},
		text("batches", "how many members are admitted in total, `STEP` by step, such as 1,10%,100%", "100%"),
		text("max-parallel", "at most `N` members or P% of them out of service at the same time", "25% when there is a policy"),
		&cli.IntFlag{Name: "max-failures", Usage: "`N` members may fail", DefaultText: "0", Category: category},
		duration("min-healthy", "a node must be healthy for `D` before the next starts; a canary then needs no promotion"),
		duration("node-deadline", "a node that takes longer than `D` has failed"),
		duration("progress-deadline", "pause if no member finished for `D`"),
		duration("bake", "a step that is done must stay without a new failure for `D` before the next begins"),
		text("gate", "after each step run `WORKFLOW` on a manager: exit code 0 passes, jorc_not_yet asks again, others fail", "none"),
		&cli.IntFlag{Name: "gate-samples", Usage: "the gate must pass `N` times in a row", DefaultText: "1", Category: category},
		&cli.DurationFlag{Name: "gate-interval", Usage: "ask the gate again after `D`", DefaultText: "1m", Category: category},
		&cli.DurationFlag{Name: "gate-timeout", Usage: "pause if the gate did not answer for `D`", DefaultText: "1h", Category: category},
		&cli.BoolFlag{Name: "approve-each", Usage: "each step but the last waits for 'jorc update promote'", DisableDefaultText: true, Category: category},
		&cli.BoolFlag{Name: "zone-by-zone", Usage: "finish one zone before the next", DisableDefaultText: true, Category: category},
		text("order", "finish one `ROLE` before the next, such as db=1,web; =N is a limit of its own, =0 excludes the role", "none"),
		text("on-failure", "`WHAT` to do when too many failed: pause or rollback", "pause"),
		&cli.StringSliceFlag{
			Name: "window", Category: category, DefaultText: "always",
			Usage: "times when nodes may begin: `SPEC` is such as \"Mon-Fri 22:00-06:00 Europe/Berlin\"; separate several by ;; \"always\" for none",
		},
	}
}

// policyOf is what the policy flags of c change; nil without such flags.
func policyOf(c *cli.Context) (func(*pace.Policy), error) {
	var parsed pace.Policy
	if err := parsePolicy(c, &parsed); err != nil {
		return nil, err
	}
	duration := func(name string) pace.Duration { return pace.Duration(c.Duration(name).Round(time.Millisecond)) }
	flags := map[string]func(*pace.Policy){
		"canary":            func(p *pace.Policy) { p.Canary = c.Int("canary") },
		"batches":           func(p *pace.Policy) { p.Batches = parsed.Batches },
		"max-parallel":      func(p *pace.Policy) { p.MaxParallel = parsed.MaxParallel },
		"max-failures":      func(p *pace.Policy) { p.MaxFailures = c.Int("max-failures") },
		"min-healthy":       func(p *pace.Policy) { p.MinHealthy = duration("min-healthy") },
		"node-deadline":     func(p *pace.Policy) { p.NodeDeadline = duration("node-deadline") },
		"progress-deadline": func(p *pace.Policy) { p.ProgressDeadline = duration("progress-deadline") },
		"bake":              func(p *pace.Policy) { p.Bake = duration("bake") },
		"gate":              func(p *pace.Policy) { p.Gate = gateOf(p.Gate, c.String("gate")) },
		"approve-each":      func(p *pace.Policy) { p.ApproveEach = c.Bool("approve-each") },
		"zone-by-zone":      func(p *pace.Policy) { p.ZoneByZone = c.Bool("zone-by-zone") },
		"order":             func(p *pace.Policy) { p.Order = parsed.Order },
		"on-failure":        func(p *pace.Policy) { p.OnFailure = c.String("on-failure") },
		"window":            func(p *pace.Policy) { p.Windows = parsed.Windows },
	}
	maps.DeleteFunc(flags, func(name string, _ func(*pace.Policy)) bool { return !c.IsSet(name) })
	if len(flags) == 0 {
		return nil, nil //nolint:nilnil // nil: no policy
	}
	return func(p *pace.Policy) {
		for _, change := range flags {
			change(p)
		}
		if c.IsSet("gate-samples") {
			p.Gate.Samples = c.Int("gate-samples")
		}
		if c.IsSet("gate-interval") {
			p.Gate.Interval = duration("gate-interval")
		}
		if c.IsSet("gate-timeout") {
			p.Gate.Timeout = duration("gate-timeout")
		}
	}, nil
}

// gateOf is the gate with another workflow; none, and nothing else of it, without one.
func gateOf(g pace.Gate, workflow string) pace.Gate {
	if workflow == "" || workflow == "none" {
		return pace.Gate{}
	}
	g.Workflow = workflow
	return g
}

// parsePolicy reads the flags whose text has a form of its own.
func parsePolicy(c *cli.Context, p *pace.Policy) (err error) {
	parse := func(flag string, read func(text string) error) {
		if c.IsSet(flag) && err == nil {
			if wrong := read(c.String(flag)); wrong != nil {
				err = usagef(c, "--%s: %v", flag, wrong)
			}
		}
	}
	parse("batches", func(text string) (err error) { p.Batches, err = pace.ParseBatches(text); return err })
	parse("max-parallel", func(text string) (err error) { p.MaxParallel, err = pace.PolicyAmount(text); return err })
	parse("order", func(text string) (err error) { p.Order, err = pace.ParseOrder(text); return err })
	parse("window", func(string) (err error) { p.Windows, err = windowsOf(c); return err })
	return err
}

// windowsOf reads --window.
func windowsOf(c *cli.Context) (all []pace.Window, err error) {
	for _, text := range c.StringSlice("window") {
		if text == "always" {
			continue
		}
		windows, err := pace.PolicyWindows(text)
		if err != nil {
			return nil, err
		}
		all = append(all, windows...)
	}
	return all, nil
}

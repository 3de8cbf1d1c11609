package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/cluster"
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
			"Exits 1 when a role is unknown or no member is left.",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "dry-run", Usage: "print the hosts that would be admitted, step by step, and write nothing", DisableDefaultText: true},
			&cli.BoolFlag{
				Name: "require-converged", DisableDefaultText: true,
				Usage: "exit 1 while members are behind the version desired so far, failed, or out of service",
			},
		}, policyFlags()...),
		Action: func(c *cli.Context) error { return env.trigger(c, false) },
	}
}

func (e *environment) trigger(c *cli.Context, quiet bool) error {
	policy, err := policyOf(c)
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
	rollouts, dry := cl.rollouts(), c.Bool("dry-run")
	t, err := rollouts.Trigger(c.Context, rollout.Request{
		Version: argument(c, 0), Policy: policy, By: by, DryRun: dry, RequireConverged: c.Bool("require-converged"),
	})
	switch {
	case errors.Is(err, rollout.ErrPolicy):
		return usagef(c, "%v", err)
	case err != nil || quiet:
		return err
	}
	orchestrated := true
	if t.Document.Paced() {
		if orchestrated, err = rollouts.Orchestrated(c.Context); err != nil {
			return err
		}
	}
	for _, text := range triggerNotes(t, dry && e.format(c) != formatJSON, orchestrated) {
		note(c, "%s", printable(text))
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

const noOrchestrator = "no orchestrator runs, so no host is offered a grant: start an agent with orchestrator { enabled = true }"

// planListing is what a dry run answers: who would be admitted if no member fails.
func planListing(steps []rollout.Decision) listing {
	l := listing{columns: []string{"step", "what", "hosts", "of"}}
	for i, d := range steps {
		l.rows = append(l.rows, []string{strconv.Itoa(i + 1), d.Text, more(", ", d.Nodes, d.Count), d.Reason})
	}
	return l
}

// triggerNotes are hints beside the answer.
func triggerNotes(t rollout.Triggered, dry, orchestrated bool) []string {
	var notes []string
	if s := t.Superseded; s != nil {
		notes = append(notes, fmt.Sprintf("the rollout of %s was unfinished (%s) and is superseded: %s", s.Version, s.State, s))
	}
	if t.Document.Paced() && t.OutText() != "" {
		notes = append(notes, t.OutText()+"; they count as out of service")
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

// policyFlags say how a version reaches the members.
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
func policyOf(c *cli.Context) (func(*rollout.Policy), error) {
	var parsed rollout.Policy
	if err := parsePolicy(c, &parsed); err != nil {
		return nil, err
	}
	duration := func(name string) rollout.Duration { return rollout.Duration(c.Duration(name).Round(time.Millisecond)) }
	flags := map[string]func(*rollout.Policy){
		"canary":            func(p *rollout.Policy) { p.Canary = c.Int("canary") },
		"batches":           func(p *rollout.Policy) { p.Batches = parsed.Batches },
		"max-parallel":      func(p *rollout.Policy) { p.MaxParallel = parsed.MaxParallel },
		"max-failures":      func(p *rollout.Policy) { p.MaxFailures = c.Int("max-failures") },
		"min-healthy":       func(p *rollout.Policy) { p.MinHealthy = duration("min-healthy") },
		"node-deadline":     func(p *rollout.Policy) { p.NodeDeadline = duration("node-deadline") },
		"progress-deadline": func(p *rollout.Policy) { p.ProgressDeadline = duration("progress-deadline") },
		"zone-by-zone":      func(p *rollout.Policy) { p.ZoneByZone = c.Bool("zone-by-zone") },
		"order":             func(p *rollout.Policy) { p.Order = parsed.Order },
		"on-failure":        func(p *rollout.Policy) { p.OnFailure = c.String("on-failure") },
		"window":            func(p *rollout.Policy) { p.Windows = parsed.Windows },
	}
	maps.DeleteFunc(flags, func(name string, _ func(*rollout.Policy)) bool { return !c.IsSet(name) })
	if len(flags) == 0 {
		return nil, nil //nolint:nilnil // nil: no policy
	}
	return func(p *rollout.Policy) {
		for _, change := range flags {
			change(p)
		}
	}, nil
}

func showRolloutCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "show", Usage: "show the rollout: phase, counts, hosts out of service, failures, what it waits for",
		Description: "Exits 1 when nothing was triggered.",
		Action:      env.onCluster(env.showRollout),
	}
}

// shownRollout is the answer of `update show`.
type shownRollout struct {
	rollout.Status
	Orchestrated bool `json:"orchestrated"` // an agent holds the orchestrator's lock
}

func (e *environment) showRollout(c *cli.Context, cl *target) error {
	status, err := cl.rollouts().Show(c.Context)
	if err != nil {
		return err
	}
	orchestrated, err := cl.rollouts().Orchestrated(c.Context)
	if err != nil {
		return err
	}
	if !orchestrated && !status.Over() && status.Paced() {
		note(c, "%s", noOrchestrator)
	}
	return e.print(c, rowsOf("what,value", rolloutRows(status)...), shownRollout{status, orchestrated})
}

// rolloutRows is a rollout for people.
func rolloutRows(s rollout.Status) [][]string {
	var rows [][]string
	add := func(what, format string, args ...any) {
		rows = append(rows, []string{what, fmt.Sprintf(format, args...)})
	}
	add("version", "%s", s.Version)
	if s.Previous != "" {
		add("previous", "%s", s.Previous)
	}
	add("phase", "%s since %s", s.StateText(), s.Since.UTC().Format(time.RFC3339))
	if s.Stopped != nil {
		add(s.State, "%s", *s.Stopped)
	}
	if r := s.RollbackOf; r != nil {
		add("rolled back", "%s: %s", r.Version, r.Reason)
	}
	add("policy", "%s", s.Policy.String())
	n := s.Now
	add("members", "%d: %d done, %d working, %d pending, %d failed, %d down", n.Members, n.Done, n.Working, n.Pending, n.Failed, n.Down)
	if n.GivenUp > 0 {
		add("given up", "%d members", n.GivenUp)
	}
	if s.Paced() {
		add("admitted", "%d, at most %d out of service", s.Admitted, s.Limit)
	}
	for _, g := range s.Grants {
		add("grant", "%s: %s of %s since %s%s", g.Node, g.State, g.Version, g.Since.UTC().Format(time.RFC3339), after(": ", g.Reason))
	}
	for _, f := range s.Failed {
		keeps := ""
		if f.Granted {
			keeps = " (it keeps its grant and stays out of service until it succeeds; 'jorc update give-up' frees its place)"
		}
		add("failed", "%s since %s: %s%s", f.Node, f.Since.UTC().Format(time.RFC3339), f.Reason, keeps)
	}
	if len(s.Down) > 0 {
		add("down", "%s", more(", ", s.Down, n.Down))
	}
	for _, o := range s.Out {
		add("out without a grant", "%s: %s", more(", ", o.Nodes, o.Count), o.Reason)
	}
	for _, o := range s.Apart {
		add("takes no part", "%s: %s", more(", ", o.Nodes, o.Count), o.Reason)
	}
	if len(s.Strangers) > 0 {
		add("not members", "%s: have a grant, which does not count; 'jorc update give-up HOST' ends it", more(", ", s.Strangers, s.StrangerCount))
	}
	for _, w := range s.Waits {
		add("waits for", "%s", w)
	}
	return rows
}

// more lists names of count.
func more(separator string, names []string, count int) string {
	text := strings.Join(names, separator)
	if count > len(names) {
		text += fmt.Sprintf(" and %d more", count-len(names))
	}
	return text
}

// operateCommands change the current rollout.
func operateCommands(env *environment) []*cli.Command {
	return []*cli.Command{
		{
			Name: "pause", Usage: "stop starting new hosts; hosts already updating continue", Flags: []cli.Flag{reasonFlag()},
			Action: env.stop("it is paused already", (*rollout.Rollouts).Pause),
		},
		{
			Name: "resume", Usage: "end a pause; earlier failures no longer count",
			Action: env.operate("it is not paused", func(c *cli.Context, r *rollout.Rollouts) (rollout.Document, bool, error) {
				return r.Resume(c.Context)
			}),
		},
		{
			Name: "promote", Usage: "continue after the canary, as soon as that is done",
			Action: env.operate("it is promoted already, or past its canary", func(c *cli.Context, r *rollout.Rollouts) (rollout.Document, bool, error) {
				return r.Promote(c.Context)
			}),
		},
		{
			Name: "abort", Usage: "end the rollout: no further host begins, and the desired version stays", Flags: []cli.Flag{reasonFlag()},
			Action: env.stop("it is aborted already", (*rollout.Rollouts).Abort),
		},
		{
			Name: "give-up", Usage: "give up on a host: its place goes to the next", ArgsUsage: "HOST", Flags: []cli.Flag{reasonFlag()},
			Description: "HOST no longer counts as out of service. It stays in maintenance and continues by itself until it has converged, " +
				"and 'jorc update show' names it. Exits 1 when HOST has no open grant.",
			Action: env.onCluster(func(c *cli.Context, cl *target) error { return env.giveUpHost(c, cl, argument(c, 0)) }),
		},
		{
			Name: "retry", Usage: "ask a host to try again now", ArgsUsage: "[HOST]",
			Description: "HOST (this one) tries at once what failed, instead of after its pause. Exits 1 when HOST never reported anything.",
			Action:      env.onCluster(env.retryHost),
		},
	}
}

// giveUpHost gives up on the grant of a host.
func (e *environment) giveUpHost(c *cli.Context, cl *target, host string) error {
	by, err := e.author(c)
	if err != nil {
		return err
	}
	version, err := cl.rollouts().GiveUp(c.Context, host, by, c.String("reason"))
	if err != nil {
		if unknown := cl.CheckHost(c.Context, host); errors.Is(unknown, cluster.ErrNoHost) {
			return unknown
		}
		return err
	}
	note(c, "the next host may begin; %s stays in maintenance until it has converged", printable(host))
	return e.print(c, rowsOf("host,version", []string{host, version}), map[string]string{"host": host, "version": version})
}

// retryHost asks a host to try again now.
func (e *environment) retryHost(c *cli.Context, cl *target) error {
	host, err := e.hostNamed(c, cl, argument(c, 0))
	if err != nil {
		return err
	}
	known, err := cl.Reports().Names(c.Context)
	if err != nil {
		return err
	}
	if !slices.Contains(known, host) {
		return fmt.Errorf("host %q has not reported anything%s", host, text.Unknown(host, "hosts that have", known))
	}
	return cl.rollouts().Retry(c.Context, host)
}

// operatedRollout is the answer of what changes a rollout.
type operatedRollout struct {
	Version string `json:"version"`
	State   string `json:"state"`
	Changed bool   `json:"changed"`
}

// operate is an action that changes the rollout; already is printed when there was
// nothing to change.
func (e *environment) operate(already string, change func(*cli.Context, *rollout.Rollouts) (rollout.Document, bool, error)) cli.ActionFunc {
	return e.onCluster(func(c *cli.Context, cl *target) error {
		d, changed, err := change(c, cl.rollouts())
		if err != nil {
			return err
		}
		if !changed {
			note(c, "the rollout of %s: %s; nothing was changed", printable(d.Version), already)
		}
		return e.print(c, rowsOf("version,phase", []string{d.Version, d.StateText()}), operatedRollout{d.Version, d.State(), changed})
	})
}

func waitRolloutCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait until all members run the desired version",
		Description: "Exits 0 when they do, 1 when members failed, the version was rolled back or another one was triggered, " +
			"6 at once when the rollout or the cluster is paused or the rollout was aborted, 124 at the timeout. On a terminal it draws progress.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "timeout", Usage: "give up after `D`; 0: never", DefaultText: "never"},
		},
		Action: env.waitRollout,
	}
}

// waitedRollout is the answer of `update wait`.
type waitedRollout struct {
	Version string           `json:"version"`
	State   string           `json:"state"`
	Now     rollout.Counts   `json:"now"`
	Failed  []rollout.Failed `json:"failed"`
	Waits   []string         `json:"waits"`
}

func (e *environment) waitRollout(c *cli.Context) error {
	if err := notNegative(c, "timeout"); err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	timeout := c.Duration("timeout")
	ctx, cancel := withTimeout(c.Context, timeout)
	defer cancel()
	var last rollout.Status
	bar := e.rolloutBar()
	err = cl.rollouts().Wait(ctx, func(s rollout.Status) { last = s; bar.draw(s) })
	bar.clear()
	if e.format(c) == formatJSON && last.Version != "" {
		if err := writeJSON(c.App.Writer, waitedRollout{last.Version, last.State, last.Now, last.Failed, last.Waits}); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, rollout.ErrStopped):
		return &exitError{code: exitStopped, err: err}
	case errors.Is(err, context.DeadlineExceeded) && last.Version != "":
		return &exitError{code: exitTimeout, err: fmt.Errorf("timed out after %v: %d of %d members run %s; it waits for %s", timeout,
			last.Now.Done, last.Now.Members, last.Version, more(", ", last.Waits, 0))}
	}
	return err
}

// rolloutBar is a progress bar on a terminal.
type rolloutBar struct {
	progress *mpb.Progress // nil: no terminal
	bar      *mpb.Bar
	phase    atomic.Pointer[string]
}

func (e *environment) rolloutBar() *rolloutBar {
	f, ok := terminalOf(e.stderr)
	if !ok || e.getenv("TERM") == "dumb" {
		return &rolloutBar{}
	}
	return &rolloutBar{progress: mpb.New(mpb.WithOutput(f), mpb.WithRefreshRate(100*time.Millisecond))}
}

// draw shows how far the rollout has come.
func (b *rolloutBar) draw(s rollout.Status) {
	if b.progress == nil {
		return
	}
	text := fmt.Sprintf("%s: %s, %d working, %d failed ", printable(s.Version), s.StateText(), s.Now.Working, s.Now.Failed)
	b.phase.Store(&text)
	if b.bar == nil {
		b.bar = b.progress.AddBar(0,
			mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return *b.phase.Load() })),
			mpb.AppendDecorators(decor.CountersNoUnit(" %d / %d")))
	}
	b.bar.SetTotal(int64(s.Now.Members), false)
	b.bar.SetCurrent(int64(s.Now.Done))
}

// clear leaves nothing of the bar.
func (b *rolloutBar) clear() {
	if b.progress == nil {
		return
	}
	if b.bar != nil {
		b.bar.Abort(true)
	}
	b.progress.Wait()
}

// stop is operate for what ends a rollout, in the name of the command's author.
func (e *environment) stop(
	already string, stop func(*rollout.Rollouts, context.Context, rollout.Stop) (rollout.Document, bool, error),
) cli.ActionFunc {
	return e.operate(already, func(c *cli.Context, r *rollout.Rollouts) (rollout.Document, bool, error) {
		by, err := e.author(c)
		if err != nil {
			return rollout.Document{}, false, err
		}
		return stop(r, c.Context, rollout.Stop{Reason: c.String("reason"), By: by})
	})
}

// parsePolicy reads the flags whose text has a form of its own.
func parsePolicy(c *cli.Context, p *rollout.Policy) (err error) {
	parse := func(flag string, read func(text string) error) {
		if c.IsSet(flag) && err == nil {
			if wrong := read(c.String(flag)); wrong != nil {
				err = usagef(c, "--%s: %v", flag, wrong)
			}
		}
	}
	parse("batches", func(text string) (err error) { p.Batches, err = rollout.ParseBatches(text); return err })
	parse("max-parallel", func(text string) (err error) { p.MaxParallel, err = rollout.ParseAmount(text); return err })
	parse("order", func(text string) (err error) { p.Order, err = rollout.ParseOrder(text); return err })
	parse("window", func(string) error {
		for _, text := range c.StringSlice("window") {
			if text == "always" {
				continue
			}
			windows, err := rollout.ParseWindows(text)
			if err != nil {
				return err
			}
			p.Windows = append(p.Windows, windows...)
		}
		return nil
	})
	return err
}

func whyCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "why", Usage: "explain why a host does not run the desired version", ArgsUsage: "[HOST]",
		Description: "Lists what keeps HOST (default: this one) from updating: dead, held, paused, failed, not admitted yet, waiting for a grant. " +
			"Exits 0 when it runs the desired version, 1 when it does not, 6 when it is held, or the rollout is paused or aborted.",
		Action: env.onCluster(env.why),
	}
}

func (e *environment) why(c *cli.Context, cl *target) error {
	host := argument(c, 0)
	this, err := e.ownNode(c)
	own := err == nil && (host == "" || host == this)
	if host == "" {
		host = this
	} else if err = nil; !own { // also where it is not known which host this is
		err = cl.CheckHost(c.Context, host)
	}
	if err != nil {
		return err
	}
	facts, err := cl.WhyFacts(c.Context, host)
	if err != nil {
		return err
	}
	if facts.Held, err = cl.HeldBy(c.Context, host); err != nil {
		return err
	}
	if own { // the agent may not run, or may not have reported it yet
		facts.HoldFile = cmp.Or(agent.HoldReason(cl.settings.StateDir), facts.HoldFile)
	}
	if facts.Desired != "" && facts.Desired != facts.Report.Version {
		if facts.Rollout, err = cl.rollouts().Why(c.Context, host); err != nil {
			return err
		}
		if facts.Slots, err = cl.slots().OfNode(c.Context, host); err != nil { // the other reasons do not depend on them
			note(c, "cannot read slots: %v", err)
		}
	}
	w := cluster.Explain(facts)
	l := listingOf("reason,detail", w.Reasons, func(r cluster.Reason) []string { return []string{r.Reason, r.Detail} })
	if err := e.print(c, l, w); err != nil {
		return err
	}
	if w.Pending && w.Stopped() {
		return &exitError{code: exitStopped}
	}
	return answerOf(!w.Pending)
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/terminal"
	"github.com/jorc/jorc/internal/text"
)

func showRolloutCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "show", Usage: "show the rollout: phase, counts, hosts out of service, failures, what it waits for",
		Description: "Exits 1 when nothing was triggered. With --watch shows on stderr how far each host is, live on a terminal and as plain lines elsewhere, " +
			"until the rollout is done or aborted, and then the answer.",
		Flags:  []cli.Flag{&cli.BoolFlag{Name: "watch", Usage: "show the hosts, live, until the rollout is over", DisableDefaultText: true}},
		Action: env.onCluster(env.showRollout),
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
	if c.Bool("watch") && !status.Over() {
		if status, err = e.watchRollout(c, cl); err != nil {
			return err
		}
	}
	return e.print(c, rowsOf("what,value", rolloutRows(status)...), shownRollout{status, orchestrated})
}

// watchRollout shows the rollout until it is over, and returns what it came to.
func (e *environment) watchRollout(c *cli.Context, cl *target) (last rollout.Status, err error) {
	live := e.live(c, 0)
	err = cl.rollouts().Follow(c.Context, func(s rollout.Status, hosts []rollout.HostProgress) (over bool) {
		last = s
		live.Show(rolloutProgress(s, hosts))
		return s.Over()
	})
	live.Stop(err != nil) // otherwise the answer follows
	return last, err
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
	add("started", "%s%s%s", s.Started.UTC().Format(time.RFC3339), after(" by ", s.By), after(": ", s.Reason))
	add("phase", "%s since %s", s.StateText(), s.Since.UTC().Format(time.RFC3339))
	if s.Stopped != nil {
		add(s.State, "%s", *s.Stopped)
	}
	if r := s.RollbackOf; r != nil {
		add("rolled back", "%s: %s", r.Version, r.Reason)
	}
	if s.Supersedes != nil {
		add("supersedes", "%s", *s.Supersedes)
	}
	add("policy", "%s%s", s.Policy.String(), repoliciedText(s))
	if s.DuringFreeze != "" {
		add("during freezes", "%s", s.DuringFreeze)
	}
	if s.OverBudget != "" {
		add("over budget", "%s", s.OverBudget)
	}
	n := s.Now
	add("members", "%d: %d done, %d working, %d waiting, %d failed, %d down%s", n.Members, n.Done, n.Working, n.Waiting, n.Failed, n.Down,
		nonzero(count{n.Held, "held"}))
	if n.GivenUp > 0 {
		add("given up", "%s", text.Count(n.GivenUp, "member", "members"))
	}
	if s.Paced() {
		add("admitted", "%d, at most %d out of service", s.Admitted, s.Limit)
	}
	if g := s.PassedGate; g != nil {
		add("passed", "%s since %s%s%s", g.Step, g.At.UTC().Format(time.RFC3339), after(", approved by ", g.By), after(": ", g.Answer))
	}
	if a := s.Approval; a != nil && a.Step == s.Steps && !s.Over() {
		add("approved", "since %s%s", a.At.UTC().Format(time.RFC3339), after(" by ", a.By))
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
		add("down", "%s", text.FewOf(", ", s.Down, n.Down))
	}
	if s.Phase != pace.Done { // then they are missing
		for _, o := range s.Held {
			add("held", "%s: %s", text.FewOf(", ", o.Nodes, o.Count), o.Reason)
		}
	}
	for _, o := range s.Out {
		add("out of service", "%s: %s", text.FewOf(", ", o.Nodes, o.Count), o.Reason)
	}
	for _, o := range s.Apart {
		add("takes no part", "%s: %s", text.FewOf(", ", o.Nodes, o.Count), o.Reason)
	}
	if len(s.Strangers) > 0 {
		add("not members", "%s: have a grant, which does not count; 'jorc update give-up HOST' ends it", text.FewOf(", ", s.Strangers, s.StrangerCount))
	}
	for _, w := range s.Waits {
		add("waits for", "%s", w)
	}
	if s.Phase == pace.Done {
		for _, m := range s.Missing {
			add("missing", "%s: %s", m.Node, m.Reason)
		}
	}
	return rows
}

// repoliciedText says who changed the policy of the rollout, if someone did.
func repoliciedText(s rollout.Status) string {
	if s.Repolicied == nil {
		return ""
	}
	return fmt.Sprintf(" (%s)", *s.Repolicied)
}

// operateCommands change the current rollout.
func operateCommands(env *environment) []*cli.Command {
	return []*cli.Command{
		{
			Name: "pause", Usage: "stop starting new hosts; hosts already updating continue", Flags: []cli.Flag{reasonFlag()},
			Action: env.onCluster(env.pauseRollout),
		},
		{Name: "resume", Usage: "end a pause; earlier failures no longer count", Action: env.onCluster(env.resumeRollout)},
		{
			Name: "promote", Usage: "continue after the canary or, with --approve-each, after the present step",
			Description: "The rollout continues as soon as that step is done and its gate is passed. 'jorc update show' has who promoted it.",
			Action:      env.onCluster(env.promoteRollout),
		},
		{
			Name: "abort", Usage: "end the rollout: no further host begins, and the desired version stays", Flags: []cli.Flag{reasonFlag()},
			Action: env.onCluster(env.abortRollout),
		},
		{
			Name: "give-up", Usage: "give up on a host: its place goes to the next", ArgsUsage: "HOST", Flags: []cli.Flag{reasonFlag()},
			Description: "HOST no longer counts as out of service. It stays in maintenance and continues by itself until it has converged, " +
				"and 'jorc update show' names it. Exits 1 when HOST has no open grant.",
			Action: env.onCluster(func(c *cli.Context, cl *target) error { return env.giveUpHost(c, cl, argument(c, 0)) }),
		},
		{
			Name: "retry", Usage: "ask a host to try again now", ArgsUsage: "[HOST]",
			Description: "HOST (this one) tries at once what failed, instead of after its pause. A host on which a task was interrupted " +
				"that is not idempotent waits for this command: it continues with that task. Exits 1 when HOST never reported anything.",
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "from-start", Usage: "run the whole workflow, not only what an interruption left", DisableDefaultText: true},
			},
			Action: env.onCluster(func(c *cli.Context, cl *target) error { return env.retryHost(c, cl, argument(c, 0)) }),
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

// retryHost asks a host to try again now; empty: this one.
func (e *environment) retryHost(c *cli.Context, cl *target, host string) error {
	host, err := e.hostNamed(c, cl, host)
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
	return cl.rollouts().Retry(c.Context, host, c.Bool("from-start"))
}

// operatedRollout is the answer of what changes a rollout.
type operatedRollout struct {
	Version string `json:"version"`
	State   string `json:"state"`
	Changed bool   `json:"changed"`
}

func (e *environment) pauseRollout(c *cli.Context, cl *target) error {
	return e.stop(c, cl, "it is paused already", (*rollout.Rollouts).Pause)
}

func (e *environment) abortRollout(c *cli.Context, cl *target) error {
	return e.stop(c, cl, "it is aborted already", (*rollout.Rollouts).Abort)
}

func (e *environment) resumeRollout(c *cli.Context, cl *target) error {
	return e.operate(c, cl, "it is not paused", func(r *rollout.Rollouts, _ string) (rollout.Document, bool, error) {
		return r.Resume(c.Context)
	})
}

func (e *environment) promoteRollout(c *cli.Context, cl *target) error {
	return e.operate(c, cl, "it is promoted already, or past its canary", func(r *rollout.Rollouts, by string) (rollout.Document, bool, error) {
		return r.Promote(c.Context, by)
	})
}

// operate changes the rollout in the name of the command's author; already is printed when there was nothing to
// change.
func (e *environment) operate(c *cli.Context, cl *target, already string, change func(r *rollout.Rollouts, by string) (rollout.Document, bool, error)) error {
	by, err := e.author(c)
	if err != nil {
		return err
	}
	d, changed, err := change(cl.rollouts(), by)
	if err != nil {
		return err
	}
	if !changed {
		note(c, "the rollout of %s: %s; nothing was changed", printable(d.Version), already)
	}
	return e.print(c, rowsOf("version,phase", []string{d.Version, d.StateText()}), operatedRollout{d.Version, d.State(), changed})
}

// stop is operate for what stops a rollout.
func (e *environment) stop(
	c *cli.Context, cl *target, already string, stop func(*rollout.Rollouts, context.Context, rollout.Stop) (rollout.Document, bool, error),
) error {
	return e.operate(c, cl, already, func(r *rollout.Rollouts, by string) (rollout.Document, bool, error) {
		return stop(r, c.Context, rollout.Stop{Reason: c.String("reason"), By: by})
	})
}

func waitRolloutCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait until all members run the desired version",
		Description: "Managers, logical members, members outside the cluster's filter and roles that --order keeps back (=0) take no part. " +
			"Exits 0 when all others run the version, also after 'jorc update rollback' began before the wait; " +
			"1 when members failed, the policy rolled the version back, or another one was triggered meanwhile; " +
			"when the same version is triggered again with another policy, it names who did, and continues; " +
			"6 when only members are missing that are held, drained (in maintenance that jorc did not begin) or given up, with their names, " +
			"and at once when the rollout or the cluster is paused or the rollout was aborted. " +
			"A member that is down is waited for: 124 at the timeout, with its name. On a terminal it draws progress.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "timeout", Usage: "give up after `D`; 0: never", DefaultText: "never"},
		},
		Action: env.onCluster(env.waitRollout),
	}
}

// waitedRollout is the answer of `update wait`.
type waitedRollout struct {
	Version string           `json:"version"`
	State   string           `json:"state"`
	Now     pace.Counts      `json:"now"`
	Failed  []rollout.Failed `json:"failed"`
	Waits   []string         `json:"waits"`
	// Missing are the members that have not arrived; the first of them.
	Missing []rollout.Missing `json:"missing"`
}

func (e *environment) waitRollout(c *cli.Context, cl *target) error {
	if err := notNegative(c, "timeout"); err != nil {
		return err
	}
	timeout := c.Duration("timeout")
	ctx, cancel := withTimeout(c.Context, timeout)
	defer cancel()
	var last rollout.Status
	live := e.live(c, quietWait)
	err := cl.rollouts().Wait(ctx, func(s rollout.Status, hosts []rollout.HostProgress) {
		if last.Version == "" && s.Supersedes != nil && s.Supersedes.By != s.By {
			note(c, "%s", printable(fmt.Sprintf("waits for %s%s; it superseded the unfinished rollout of %s", s.Version, s.TriggeredText(), s.Supersedes)))
		}
		before := last.Repolicied
		if last.Version == "" && s.Repolicied != nil && s.Repolicied.By == s.By {
			before = s.Repolicied // by the same operator, before the wait
		}
		if r := s.Repolicied; s.Version == cmp.Or(last.Version, s.Version) && r != nil && (before == nil || *r != *before) {
			live.Stop(true)
			note(c, "%s", printable(fmt.Sprintf("the policy of %s was %s, and is now: %s; the wait for %s continues", s.Version, r, s.Policy, s.Version)))
			live = e.live(c, quietWait)
		}
		last = s
		live.Show(rolloutProgress(s, hosts))
	})
	live.Stop(true)
	if e.format(c) == formatJSON && last.Version != "" {
		if err := e.writeJSON(c.App.Writer, waitedRollout{last.Version, last.State, last.Now, last.Failed, last.Waits, last.Missing}); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, rollout.ErrStopped), errors.Is(err, rollout.ErrAside):
		return &exitError{code: exitStopped, err: err}
	case errors.Is(err, context.DeadlineExceeded) && last.Version != "":
		return &exitError{code: exitTimeout, err: fmt.Errorf("timed out after %v: %s%s", timeout, last.Arrival, after("; it waits for ", strings.Join(last.Waits, ", ")))}
	}
	return err
}

// rolloutProgress is a rollout for a live display.
func rolloutProgress(s rollout.Status, hosts []rollout.HostProgress) terminal.Progress {
	p := terminal.Progress{Title: s.Version + ": " + s.StateText(), Since: s.Started, Until: s.Finished, Waits: strings.Join(s.Waits, "; ")}
	return onHosts(p, s.Now, hosts, func(h rollout.HostProgress) pace.HostProgress { return h.HostProgress })
}

// nonzero formats ", 2 waiting, 1 down"; zero counts are left out.
func nonzero(counts ...count) (text string) {
	for _, c := range counts {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.noun)
		}
	}
	return text
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
	_, w, err := e.whyPending(c, cl, argument(c, 0))
	if err != nil {
		return err
	}
	l := listingOf("reason,detail", w.Reasons, func(r cluster.Reason) []string { return []string{r.Reason, r.Detail} })
	if err := e.print(c, l, w); err != nil {
		return err
	}
	if w.Pending && w.Stopped() {
		return &exitError{code: exitStopped}
	}
	return answerOf(!w.Pending)
}

// whyPending explains why a host does not run the desired version; empty: this one. It returns the host's name, too.
func (e *environment) whyPending(c *cli.Context, cl *target, host string) (name string, w cluster.Why, err error) {
	this, err := e.ownNode(c)
	own := err == nil && (host == "" || host == this)
	if host == "" {
		host = this
	} else if err = nil; !own { // also where it is not known which host this is
		err = cl.CheckHost(c.Context, host)
	}
	if err != nil {
		return "", w, err
	}
	facts, err := cl.WhyFacts(c.Context, host)
	if err != nil {
		return "", w, err
	}
	if facts.Held, err = cl.HeldBy(c.Context, host); err != nil {
		return "", w, err
	}
	if own { // the agent may not run, or may not have reported it yet
		facts.HoldFile = cmp.Or(agent.HoldReason(cl.settings.StateDir), facts.HoldFile)
	}
	if facts.InRollout() {
		if facts.Rollout, err = cl.rollouts().Why(c.Context, host); err != nil {
			return "", w, err
		}
		if facts.Slots, err = cl.slots().OfNode(c.Context, host); err != nil { // the other reasons do not depend on them
			note(c, "cannot read slots: %v", err)
		}
	}
	return host, cluster.Explain(facts), nil
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/budget"
	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/terminal"
	"github.com/jorc/jorc/internal/text"
	"github.com/jorc/jorc/internal/ui"
)

// changeCommand sees and steers whatever reaches hosts one after the other. Each verb is another name for the
// command of the change's kind.
func changeCommand(env *environment) *cli.Command {
	const which = "ID may be cut while it stays unique; without ID: the only change in progress. "
	verb := func(name, usage, args, description string, act func(c *cli.Context, cl *target, of shownChange) error, flags ...cli.Flag) *cli.Command {
		return &cli.Command{
			Name: name, Usage: usage, ArgsUsage: args, Description: which + description, Flags: flags,
			Action: env.onCluster(func(c *cli.Context, cl *target) error {
				of, err := env.changeNamed(c, cl, argument(c, 0))
				if err != nil {
					return err
				}
				return act(c, cl, of)
			}),
		}
	}
	return &cli.Command{
		Name:  "change",
		Usage: "all that reaches hosts one after the other: versions, files of stages, runs, leases of hosts",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list changes in progress: how far each is, and what it waits for",
				Description: "ID is KIND.NAME: version.VERSION, files.STAGE, run.ID or lease.HOST. With --all also changes that have ended.",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "all", Usage: "also changes that have ended", DisableDefaultText: true},
					&cli.StringFlag{Name: "kind", Usage: "only changes of `KIND`: " + strings.Join(cluster.ChangeKinds(), ", "), DefaultText: "all"},
				},
				Action: env.onCluster(env.listChanges),
			},
			verb("show", "show a change, host by host", "[ID]",
				"Means 'jorc update show', 'jorc stage show STAGE' or 'jorc cluster runs ID'. With --watch shows the hosts live on stderr until the change is over, stopped or paused, and then the answer.", env.showChange,
				&cli.BoolFlag{Name: "watch", Usage: "show the hosts, live, until the change is over", DisableDefaultText: true}),
			{
				Name: "why", Usage: "explain what a host waits for, over all changes", ArgsUsage: "[HOST]",
				Description: "Lists what keeps HOST (default: this one) from its part of each change. " +
					"Exits 0 when it waits for nothing, 1 when it does, 6 when it is held, or the rollout is paused or aborted.",
				Action: env.onCluster(env.whyChanges),
			},
			verb("wait", "wait until a change is done", "[ID]",
				"Means 'jorc update wait' or 'jorc cluster wait --for run=ID', with their exit codes: 0 done, 1 failed, 6 paused, 124 at the timeout. "+
					"Files are done when all hosts of the stage have what they want, and failed when the stage is stopped; new data counts once a host has rendered it. "+
					"A lease is done when it is over.", env.waitForChange,
				&cli.DurationFlag{Name: "timeout", Usage: "give up after `D`; 0: never", DefaultText: "never"}),
			verb("pause", "begin on no further host; hosts already at work continue", "[ID]", "Means 'jorc update pause'.", env.pauseChange, reasonFlag()),
			verb("resume", "end a pause, or approve a change of files that failed", "[ID]",
				"Means 'jorc update resume' or 'jorc stage resume STAGE': what failed until now no longer counts.", env.resumeChange, reasonFlag(), duringFreezeFlag(), overBudgetFlag()),
			verb("approve", "let a change that waits for approval continue", "[ID]",
				"Means 'jorc update promote', 'jorc stage approve STAGE' or 'jorc cluster approve ID'.", env.approveChange, reasonFlag()),
			verb("cancel", "end a change: it begins on no further host", "[ID]",
				"Means 'jorc update abort' or 'jorc cluster cancel ID'.", env.cancelChange, reasonFlag(), killFlag()),
			{
				Name: "retry", Usage: "try again what failed", ArgsUsage: "[ID] [HOST]",
				Description: which + "On HOST, or for a run on all members on which it failed. Means 'jorc update retry HOST', where HOST must be given, 'jorc stage resume STAGE --node HOST' " +
					"or 'jorc cluster run --retry-of ID', which prints the id of the new run.",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "from-start", Usage: "run the whole workflow, not only what an interruption left", DisableDefaultText: true},
					reasonFlag(),
				},
				Action: env.onCluster(env.retryChange),
			},
			{
				Name: "give-up", Usage: "give up on a host: its place goes to the next", ArgsUsage: "HOST", Flags: []cli.Flag{reasonFlag()},
				Description: "Means 'jorc update give-up HOST', or gives up on the lease of HOST, or on its grants of stages, the first of these that it has. Exits 1 when HOST has none of them.",
				Action: env.onCluster(func(c *cli.Context, cl *target) error {
					host := argument(c, 0)
					if ok, err := env.giveUpLease(c, cl, host); ok || err != nil {
						return err
					}
					version := env.giveUpHost(c, cl, host)
					if errors.Is(version, change.ErrNoGrant) {
						if err := env.giveUpFiles(c, cl, host); !errors.Is(err, change.ErrNoGrant) {
							return err
						}
					}
					return version
				}),
			},
			{
				Name: "history", Usage: "list changes that have ended, or show one", ArgsUsage: "[ID]",
				Description: "The last 100 rollouts, and runs of the last 30 days, at most 100 of them. Exits 2 for an ID that none of them has.",
				Action:      env.onCluster(env.changeHistory),
			},
			verb("logs", "print the last output of a run's tasks", "ID [HOST]", "Means 'jorc cluster logs ID HOST'.", env.changeLogs),
		},
	}
}

// shownChange is one change in the list of all.
type shownChange struct {
	ui.ChangeRow
	past bool // a rollout of the history
}

// changes reads all changes of a kind, or of all; ended: also the ones that have ended, which come last.
func (e *environment) changes(c *cli.Context, cl *target, kind string, ended bool) ([]shownChange, error) {
	all := []shownChange{}
	for _, of := range cluster.ChangeKinds() {
		if kind != "" && kind != of {
			continue
		}
		some, err := e.changesOf(c, cl, of, ended)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	if !ended {
		all = slices.DeleteFunc(all, func(x shownChange) bool { return x.Ended })
	}
	slices.SortFunc(all, func(a, b shownChange) int { return ui.CompareChanges(a.ChangeRow, b.ChangeRow) })
	return all, nil
}

// changesOf reads those of one kind; without ended it may leave out what has ended.
func (e *environment) changesOf(c *cli.Context, cl *target, kind string, ended bool) ([]shownChange, error) {
	switch kind {
	case cluster.KindVersion:
		return e.versionChanges(c, cl, ended)
	case cluster.KindFiles:
		return e.filesChanges(c, cl)
	case cluster.KindLease:
		return e.leaseChanges(c, cl)
	}
	return e.runChanges(c, cl)
}

// versionChanges is the rollout, and with ended the ones before.
func (e *environment) versionChanges(c *cli.Context, cl *target, ended bool) (all []shownChange, err error) {
	s, err := cl.rollouts().Show(c.Context)
	switch {
	case errors.Is(err, rollout.ErrNone):
	case err != nil:
		return nil, err
	default:
		all = append(all, shownChange{ChangeRow: ui.VersionRow(s)})
	}
	if !ended {
		return all, nil
	}
	history, bad, err := cl.rollouts().History(c.Context)
	if err != nil {
		return nil, err
	}
	noteUnread(c, bad)
	for _, f := range history {
		if f.Version == s.Version && f.Started.Equal(s.Started) {
			continue // it is the present one
		}
		all = append(all, shownChange{ui.FinishedRow(f), true})
	}
	return all, nil
}

// filesChanges is one change for each stage.
func (e *environment) filesChanges(c *cli.Context, cl *target) (all []shownChange, err error) {
	stages, err := stage.Show(c.Context, cl.Cluster, "", budget.OfState(cl.rollouts(), readLife), time.Now())
	if err != nil {
		return nil, err
	}
	for _, s := range stages {
		all = append(all, shownChange{ChangeRow: ui.FilesRow(s)})
	}
	return all, nil
}

// runChanges are the runs.
func (e *environment) runChanges(c *cli.Context, cl *target) (all []shownChange, err error) {
	list, err := allRuns(c, cl)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		all = append(all, shownChange{ChangeRow: ui.RunRowOf(r)})
	}
	return all, nil
}

// changeListing shows changes to people. The columns of the state and of what a change waits for have names of their own.
func changeListing(all []shownChange, state, waits string) listing {
	return listingOf("id,what,"+state+"*,done,failed,since,by,"+waits, all, func(x shownChange) []string {
		return []string{x.ID, x.What, x.State, fmt.Sprintf("%d/%d", x.Counts.Done, x.Counts.Members), strconv.Itoa(x.Counts.Failed), when(x.Since), x.By, x.Waits}
	})
}

func (e *environment) listChanges(c *cli.Context, cl *target) error {
	kind := c.String("kind")
	if c.IsSet("kind") && !slices.Contains(cluster.ChangeKinds(), kind) {
		return usagef(c, "--kind %q: must be one of %s", kind, strings.Join(cluster.ChangeKinds(), ", "))
	}
	all, err := e.changes(c, cl, kind, c.Bool("all"))
	if err != nil {
		return err
	}
	return e.print(c, changeListing(all, "state", "waits"), all)
}

// changeNamed returns the change that id names, which may be cut; empty: the only one in progress.
func (e *environment) changeNamed(c *cli.Context, cl *target, id string) (shownChange, error) {
	if kind, _, ok := strings.Cut(id, "."); ok && slices.Contains(cluster.ChangeKinds(), kind) { // the other kinds need not be read
		all, err := e.changes(c, cl, kind, true)
		if err != nil {
			return shownChange{}, err
		}
		if found := changesNamed(all, id); len(found) == 1 {
			return found[0], nil
		}
	}
	all, err := e.changes(c, cl, "", id != "")
	if err != nil {
		return shownChange{}, err
	}
	if id == "" {
		switch len(all) {
		case 1:
			return all[0], nil
		case 0:
			return shownChange{}, usagef(c, "no change is in progress: 'jorc change list --all' lists the ones that have ended")
		}
		return shownChange{}, usagef(c, "%d changes are in progress: give one of %s", len(all), idsOf(all))
	}
	found := changesNamed(all, id)
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		ids := make([]string, len(all))
		for i, x := range all {
			ids[i] = x.ID
		}
		return shownChange{}, usagef(c, "there is no change %q%s: 'jorc change list --all' lists all", id, text.Unknown(id, "changes", ids))
	}
	return shownChange{}, usagef(c, "%q is the beginning of %d changes: give one of %s", id, len(found), idsOf(found))
}

// changesNamed returns the changes whose ID or name is id; if no change has it, the ones whose ID or name begins with it.
func changesNamed(all []shownChange, id string) (found []shownChange) {
	for _, is := range []func(name string) bool{
		func(name string) bool { return name == id },
		func(name string) bool { return strings.HasPrefix(name, id) },
	} {
		for _, x := range all {
			if is(x.ID) || is(x.Name) {
				found = append(found, x)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	return found
}

// idsOf names changes, some of them.
func idsOf(all []shownChange) string {
	const most = 5
	var ids []string
	for _, x := range all[:min(len(all), most)] {
		ids = append(ids, x.ID)
	}
	return text.FewOf(", ", ids, len(all))
}

// cannot is wrong usage: changes of a kind have no such verb.
func cannot(c *cli.Context, of shownChange, what, instead string) error {
	return usagef(c, "%s: %s; %s", of.ID, what, instead)
}

// over is wrong usage of a change that has ended.
func over(c *cli.Context, of shownChange) error {
	return cannot(c, of, "it has ended", "'jorc change history "+of.Name+"' shows it")
}

func (e *environment) showChange(c *cli.Context, cl *target, of shownChange) error {
	watch := c.Bool("watch")
	switch {
	case of.Kind == cluster.KindLease && watch:
		return cannot(c, of, "--watch is for changes of several hosts", "'jorc change wait "+of.ID+"' waits until it is over")
	case of.Kind == cluster.KindLease:
		return e.showLease(c, cl, of.Name)
	case of.Kind == cluster.KindFiles:
		if watch && !of.Ended {
			if _, err := e.watchFiles(c.Context, c, cl, of.Name); err != nil && !errors.Is(err, stage.ErrStopped) && !errors.Is(err, stage.ErrPaused) {
				return err
			}
		}
		return e.showStage(c, cl, of.Name)
	case of.Kind == cluster.KindRun:
		if watch && !of.Ended {
			if _, err := e.await(c, cl, runs.Goal{Run: of.Name}, nil); err != nil && !errors.Is(err, errNo) {
				return err
			}
		}
		return e.showRun(c, cl, of.Name)
	case of.past:
		return e.showHistory(c, cl, of.Name)
	}
	return e.showRollout(c, cl)
}

// waitingChange is a reason for which a host waits for a change.
type waitingChange struct {
	Change string `json:"change"`
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

func (e *environment) whyChanges(c *cli.Context, cl *target) error {
	host, why, err := e.whyPending(c, cl, argument(c, 0))
	if err != nil {
		return err
	}
	all := []waitingChange{}
	if why.Pending && why.Desired != "" {
		for _, r := range why.Reasons {
			all = append(all, waitingChange{cluster.ChangeID(cluster.KindVersion, why.Desired), r.Reason, r.Detail})
		}
	}
	stages, err := stage.Show(c.Context, cl.Cluster, "", budget.OfState(cl.rollouts(), readLife), time.Now())
	if err != nil {
		return err
	}
	for _, s := range stages {
		for _, h := range s.Hosts {
			if h.Node == host && h.Waits != "" {
				all = append(all, waitingChange{cluster.ChangeID(cluster.KindFiles, s.Stage), h.State.String(), h.Waits})
			}
		}
	}
	if l, asks, err := lease.ShowOne(c.Context, cl.Cluster, host); err != nil {
		return err
	} else if asks && l.Waits != "" {
		all = append(all, waitingChange{cluster.ChangeID(cluster.KindLease, host), cmp.Or(string(l.Code), l.State), l.Waits})
	}
	active, err := e.changes(c, cl, cluster.KindRun, false)
	if err != nil {
		return err
	}
	for _, x := range active {
		d, err := cl.runs().Show(c.Context, x.Name)
		if err != nil {
			return err
		}
		for _, m := range d.Members {
			if m.Node == host && !m.State.Ended() {
				all = append(all, waitingChange{x.ID, string(m.State), cmp.Or(m.Why, x.Waits)})
			}
		}
	}
	if err := e.print(c, listingOf("change,reason,detail", all, func(w waitingChange) []string { return []string{w.Change, w.Reason, w.Detail} }), all); err != nil {
		return err
	}
	if why.Pending && why.Stopped() {
		return &exitError{code: exitStopped}
	}
	return answerOf(len(all) == 0)
}

func (e *environment) waitForChange(c *cli.Context, cl *target, of shownChange) error {
	if err := notNegative(c, "timeout"); err != nil {
		return err
	}
	switch of.Kind {
	case cluster.KindFiles:
		return e.waitForFiles(c, cl, of.Name)
	case cluster.KindRun:
		return e.awaitGoal(c, cl, runs.Goal{Run: of.Name}, nil)
	case cluster.KindLease:
		return e.waitLease(c, cl, of.Name)
	}
	if of.past {
		return over(c, of)
	}
	return e.waitRollout(c, cl)
}

// waitForFiles waits until all hosts of a stage have what they want.
func (e *environment) waitForFiles(c *cli.Context, cl *target, name string) error {
	timeout := c.Duration("timeout")
	ctx, cancel := withTimeout(c.Context, timeout)
	defer cancel()
	last, err := e.watchFiles(ctx, c, cl, name)
	if e.format(c) == formatJSON && last.Stage != "" {
		if err := e.writeJSON(c.App.Writer, last); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, stage.ErrPaused):
		return &exitError{code: exitStopped, err: err}
	case errors.Is(err, context.DeadlineExceeded) && c.Context.Err() == nil:
		return &exitError{code: exitTimeout, err: fmt.Errorf("timed out after %v%s", timeout, after(": ", last.Waits()))}
	}
	return err
}

// watchFiles shows a stage until all its hosts have what they want, and returns how far it was. It returns what stage.Wait returns.
func (e *environment) watchFiles(ctx context.Context, c *cli.Context, cl *target, name string) (last stage.Status, err error) {
	live := e.live(c, quietWait)
	err = stage.Wait(ctx, cl.Cluster, name, budget.OfState(cl.rollouts(), readLife), func(s stage.Status) {
		if last.Stage == "" {
			noteUnorchestratedStage(c, s)
		}
		last = s
		live.Show(stageProgress(s))
	})
	live.Stop(true)
	return last, err
}

// stageProgress is a stage for a live display.
func stageProgress(s stage.Status) terminal.Progress {
	p := terminal.Progress{Title: "files of stage " + s.Stage + ": " + s.State, Since: s.Since, Waits: s.Waits()}
	return onHosts(p, s.Counts, s.Hosts, func(h stage.HostProgress) pace.HostProgress { return h.HostProgress })
}

// onHosts adds to p how far a change is on its hosts. Until all hosts have it or it has ended, its title says always how many work, and how many failed.
func onHosts[T any](p terminal.Progress, n pace.Counts, hosts []T, progress func(T) pace.HostProgress) terminal.Progress {
	p.Done, p.Total = n.Done, n.Members
	if p.Until.IsZero() && n.Done < n.Members {
		p.Title += fmt.Sprintf(", %d working, %d failed", n.Working, n.Failed)
		n.Working, n.Failed = 0, 0
	}
	p.Title += nonzero(count{n.Working, "working"}, count{n.Failed, "failed"}, count{n.Waiting, "waiting"}, count{n.Down, "down"}, count{n.GivenUp, "given up"}, count{n.Held, "held"})
	for _, one := range hosts {
		h, kind := progress(one), terminal.Waiting
		switch h.State {
		case pace.HasIt, pace.Apart:
			continue
		case pace.Failed:
			kind = terminal.Failed
		case pace.Working:
			kind = terminal.Working
		}
		p.Hosts = append(p.Hosts, terminal.Host{Name: h.Node, Kind: kind, State: h.State.String(), Since: h.Since, Text: h.Detail})
	}
	return p
}

func (e *environment) pauseChange(c *cli.Context, cl *target, of shownChange) error {
	switch {
	case of.Kind == cluster.KindLease:
		return cannot(c, of, "a lease cannot be paused", "'jorc cluster pause' keeps hosts that wait from getting theirs")
	case of.Kind == cluster.KindFiles:
		return cannot(c, of, "a stage cannot be paused", "'jorc cluster hold --role ROLE' keeps its hosts as they are")
	case of.Kind == cluster.KindRun:
		return cannot(c, of, "a run cannot be paused", "'jorc cluster pause' pauses the cluster, 'jorc change cancel "+of.ID+"' ends the run")
	case of.Ended:
		return over(c, of)
	}
	return e.pauseRollout(c, cl)
}

func (e *environment) resumeChange(c *cli.Context, cl *target, of shownChange) error {
	exceptions, err := exceptionsOf(c)
	switch {
	case err != nil:
		return err
	case of.Kind == cluster.KindLease:
		return cannot(c, of, "a lease is not paused", "'jorc change why "+of.Name+"' says what it waits for")
	case of.Kind == cluster.KindFiles:
		return e.resumeStage(c, cl, of.Name, "")
	case exceptions.OverBudget != "" || exceptions.DuringFreeze != "":
		return cannot(c, of, "--over-budget and --during-freeze of a resume are for files", "'jorc update trigger' and 'jorc cluster run' take them")
	case of.Kind == cluster.KindRun:
		return cannot(c, of, "a run is not paused by itself", "'jorc change retry "+of.ID+"' runs it again where it failed")
	case of.Ended:
		return over(c, of)
	}
	return e.resumeRollout(c, cl)
}

func (e *environment) approveChange(c *cli.Context, cl *target, of shownChange) error {
	switch {
	case of.Kind == cluster.KindLease:
		return cannot(c, of, "a lease needs no approval", "'jorc change why "+of.Name+"' says what it waits for")
	case of.Kind == cluster.KindFiles:
		return e.approveStage(c, cl, of.Name)
	case of.Kind == cluster.KindRun:
		return e.approveRun(c, cl, of.Name)
	case of.Ended:
		return over(c, of)
	}
	return e.promoteRollout(c, cl)
}

func (e *environment) cancelChange(c *cli.Context, cl *target, of shownChange) error {
	switch {
	case of.Kind != cluster.KindRun && c.Bool("kill"):
		return cannot(c, of, "--kill is for runs", "hosts that are at work end their task")
	case of.Kind == cluster.KindLease:
		return cannot(c, of, "only its host ends a lease", "'jorc maintenance end' on "+of.Name+", or 'jorc change give-up "+of.Name+"', and its place goes to the next")
	case of.Kind == cluster.KindFiles:
		return cannot(c, of, "a change of files ends when its data is as before", "write the value from before: hosts that wait then have nothing to take")
	case of.Kind == cluster.KindRun:
		return e.cancelRun(c, cl, of.Name)
	case of.past:
		return over(c, of)
	}
	return e.abortRollout(c, cl) // also when it was before: that is safe to repeat
}

func (e *environment) retryChange(c *cli.Context, cl *target) error {
	id, host := argument(c, 0), argument(c, 1)
	if id != "" && host == "" { // the only argument may be a host
		if err := cl.CheckHost(c.Context, id); err == nil {
			id, host = "", id
		}
	}
	of, err := e.changeNamed(c, cl, id)
	if err != nil {
		return err
	}
	switch {
	case of.Kind == cluster.KindLease:
		return cannot(c, of, "a lease does nothing that could be tried again", "'jorc maintenance begin' on "+of.Name+" asks again")
	case of.Kind == cluster.KindFiles && c.Bool("from-start"):
		return cannot(c, of, "--from-start is for versions and runs", "leave it out")
	case of.Kind == cluster.KindFiles:
		return e.resumeStage(c, cl, of.Name, host)
	case of.Kind == cluster.KindRun:
		return e.retryRun(c, cl, of.Name, host)
	case host == "":
		return cannot(c, of, "which host is to try again is missing", "'jorc change retry "+of.ID+" HOST'")
	case of.past:
		return over(c, of)
	}
	return e.retryHost(c, cl, host)
}

// retryRun asks for a run on the members of another one on which it did not succeed, or on one of them.
func (e *environment) retryRun(c *cli.Context, cl *target, id, host string) error {
	q := runs.Request{RetryOf: id, FromStart: c.Bool("from-start")}
	if host != "" {
		q.Nodes = []string{host}
	}
	q, err := retried(c, cl, q)
	if err != nil {
		return err
	}
	run, _, err := e.askFor(c, cl, runs.NewID(time.Now()), q)
	if err != nil {
		return err
	}
	noteNoOrchestrator(c, cl)
	return e.print(c, rowsOf("id,state", []string{run.ID, string(run.State)}), run)
}

func (e *environment) changeHistory(c *cli.Context, cl *target) error {
	if id := argument(c, 0); id != "" {
		of, err := e.changeNamed(c, cl, id)
		switch {
		case err != nil:
			return err
		case of.Kind == cluster.KindRun:
			return e.showRun(c, cl, of.Name)
		case of.Kind == cluster.KindLease:
			return cannot(c, of, "it is in progress", "'jorc change show "+of.ID+"' shows it")
		case of.Kind == cluster.KindFiles:
			return cannot(c, of, "no history is kept of files", "'jorc cluster events' has what happened")
		case of.Ended:
			return e.showHistory(c, cl, of.Name)
		}
		return cannot(c, of, "it is in progress", "'jorc change show "+of.ID+"' shows it")
	}
	all, err := e.changes(c, cl, "", true)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(x shownChange) bool { return !x.Ended || x.Kind == cluster.KindFiles })
	return e.print(c, changeListing(all, "outcome", "why"), all)
}

func (e *environment) changeLogs(c *cli.Context, cl *target, of shownChange) error {
	if of.Kind != cluster.KindRun {
		return cannot(c, of, "only runs send the output of their tasks", "'jorc workflow logs' on the host prints those of its workflows")
	}
	return e.runLogs(c, cl, of.Name, argument(c, 1))
}

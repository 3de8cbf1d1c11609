package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/text"
)

func updateCommand(env *environment) *cli.Command {
	update := &cli.Command{
		Name:  "update",
		Usage: "versions: the desired one, its rollout, and what hosts run",
		Subcommands: append([]*cli.Command{
			triggerCommand(env),
			rollbackCommand(env),
			{
				Name: "current", Usage: "print the desired version",
				Description: "Exits 1 when no version was triggered.",
				Action:      env.currentVersion,
			},
			{
				Name: "pending", Usage: "report by exit code whether this host has a pending update",
				Description: "Compares the desired version with that of the version file. Exits 0 when an update is pending, 1 when none is, " +
					"2 when Consul is unreachable and this host has a version, 3 when no version was triggered, or Consul is unreachable and this host has none, 64 on wrong usage.",
				Action: env.pendingUpdate,
			},
			{
				Name: "local", Usage: "print the version of this host's version file, or write it", ArgsUsage: "[VERSION]",
				Description: "Exits 1 when there is no version yet. The file is replaced whole or not at all.",
				Action:      env.localVersion,
			},
			{
				Name: "report", Usage: "report which version this host runs",
				Description: "Without --version that of the version file; without any version it does nothing.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "host", Usage: "report for `HOST`", DefaultText: "this one"},
					&cli.StringFlag{Name: "version", Usage: "it runs `VERSION`", DefaultText: "that of the version file"},
				},
				Action: func(c *cli.Context) error {
					if c.IsSet("host") && c.String("host") == "" {
						return usagef(c, "--host must not be empty")
					}
					return env.reportVersion(c, c.String("host"))
				},
			},
			{Name: "running", Usage: "list running versions", Action: env.onCluster(env.runningVersions)},
			{Name: "hosts", Usage: "list the hosts that run a version", ArgsUsage: "VERSION", Action: env.hostsAtVersion},
			{
				Name: "verify", Usage: "check that hosts run a version", ArgsUsage: "VERSION [HOST…]",
				Description: "Hosts also come from standard input, separated by white space: without HOST, or where it is -. " +
					"Lists the hosts that do not run it, and what they run; stderr has what keeps them. " +
					"Members that take no part (managers, logical members, roles that the rollout's --order keeps back) are left out and named. " +
					"Exits 0 only when all others run it; no host at all is 1.",
				Action: env.verifyHosts,
			},
			{
				Name: "single", Usage: "check that a version is the only running one", ArgsUsage: "VERSION",
				Description: "Lists the other versions. Hosts that are down or not in Consul's catalog, and members that take no part " +
					"(managers, roles that the rollout's --order keeps back), do not count and are listed separately. " +
					"Exits 0 when it is the only one, 1 if it is not, or no host runs it.",
				Action: env.onCluster(env.singleVersion),
			},
			showRolloutCommand(env),
			whyCommand(env),
			waitRolloutCommand(env),
			historyCommand(env),
		}, operateCommands(env)...),
	}
	for _, c := range update.Subcommands {
		if verb := updateNames()[c.Name]; verb != "" {
			c.Description = strings.TrimSpace(c.Description + " A name for 'jorc change " + verb + "' of a version.")
		}
	}
	return update
}

// updateNames are the verbs that are other names for verbs of `jorc change`.
func updateNames() map[string]string {
	return map[string]string{
		"show": "show", "why": "why", "wait": "wait", "pause": "pause", "resume": "resume", "promote": "approve", "abort": "cancel",
		"retry": "retry", "give-up": "give-up", "history": "history",
	}
}

// desired reads the desired version. Without a version it returns
// cluster.ErrNoCluster for a cluster that does not exist; hosts that ask often make
// no other request.
func (e *environment) desired(c *cli.Context) (string, error) {
	cl, err := e.cluster(c, "")
	if err != nil {
		return "", err
	}
	version, err := cl.Desired(c.Context)
	if err == nil && version == "" {
		err = cl.CheckExists(c.Context)
	}
	return version, err
}

// versionAnswer is the answer of commands about one version; it is empty when
// no version is known.
type versionAnswer struct {
	Version string `json:"version"`
}

func (e *environment) currentVersion(c *cli.Context) error {
	version, err := e.desired(c)
	if err != nil {
		return err
	}
	var words []string
	if version != "" {
		words = []string{version}
	}
	if err := e.lines(c, "version", words, versionAnswer{version}); err != nil || version != "" {
		return err
	}
	return errors.New("no desired version set: 'jorc update trigger VERSION' sets it")
}

func (e *environment) runningVersions(c *cli.Context, cl *target) error {
	s, err := cl.LoadReports(c.Context)
	if err != nil {
		return err
	}
	versions := s.RunningVersions()
	return e.lines(c, "version", versions, append([]string{}, versions...))
}

func (e *environment) hostsAtVersion(c *cli.Context) error {
	version := argument(c, 0)
	if err := cluster.CheckVersion(version); err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	s, err := cl.LoadReports(c.Context)
	if err != nil {
		return err
	}
	hosts := s.HostsRunning(version)
	return e.lines(c, "host", hosts, append([]string{}, hosts...))
}

// pendingAnswer is the answer of `update pending -o json`.
type pendingAnswer struct {
	Answer  string `json:"answer"`
	Desired string `json:"desired"`
	Local   string `json:"local"`
	Code    int    `json:"code"`
}

// exitPending is the code of wrong usage for commands whose own codes mean
// something else: EX_USAGE of sysexits(3).
const exitPending = 64

func (e *environment) pendingUpdate(c *cli.Context) error {
	file, err := e.versionFile(c)
	if err != nil {
		return err
	}
	if _, _, err := e.consul(c); err != nil {
		return err
	}
	local, localErr := converge.ReadVersionFile(file)
	desired, desiredErr := e.desired(c)
	if errors.Is(desiredErr, cluster.ErrNoCluster) {
		return &exitError{code: int(cluster.NoDesiredVersion), err: desiredErr}
	}
	if c.Context.Err() != nil {
		return desiredErr
	}
	for _, err := range []error{desiredErr, localErr} {
		if err != nil && !errors.Is(err, cluster.ErrNoVersion) {
			note(c, "%v", err)
		}
	}
	p := cluster.PendingChangeOf(desired, desiredErr, local, localErr)
	err = e.lines(c, "answer", []string{p.String()}, pendingAnswer{p.String(), desired, local, int(p)})
	return &exitError{code: int(p), err: err}
}

// reportVersion reports for host, or for this one.
func (e *environment) reportVersion(c *cli.Context, host string) error {
	version := c.String("version")
	if !c.IsSet("version") {
		file, err := e.versionFile(c)
		if err != nil {
			return err
		}
		version, err = converge.ReadVersionFile(file)
		if errors.Is(err, cluster.ErrNoVersion) {
			note(c, "nothing to report: %v", err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	if err := cluster.CheckVersion(version); err != nil {
		return err
	}
	if host, err = e.hostNamed(c, cl, host); err != nil {
		return err
	}
	_, err = cl.ReportVersion(c.Context, host, version)
	return err
}

func (e *environment) verifyHosts(c *cli.Context) error {
	missing, err := e.notAtVersion(c)
	if err != nil && !errors.Is(err, errNoHosts) {
		return err
	}
	l := listingOf("host,version", missing, func(m cluster.OtherHost) []string { return []string{m.Host, cmp.Or(m.Version, "-")} })
	if err := e.printProblems(c, l, append([]cluster.OtherHost{}, missing...)); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	return answerOf(len(missing) == 0)
}

var errNoHosts = &exitError{code: exitFailed, err: fmt.Errorf("no hosts given, neither as arguments nor on standard input")}

// hostArguments are the hosts named by arguments; "-", or none at all, stands
// for what standard input names.
func (e *environment) hostArguments(ctx context.Context, args []string) ([]string, error) {
	if len(args) > 0 && !slices.Contains(args, "-") {
		return args, nil
	}
	more, err := readWords(ctx, e.stdin)
	if err != nil {
		return nil, fmt.Errorf("read hosts from standard input: %w", err)
	}
	return append(slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "-" }), more...), nil
}

// mostWords bounds what is read from standard input, in bytes.
const mostWords = 16 << 20

// readWords reads words up to the end of r, or of ctx: no writer may be there to
// end what is typed.
func readWords(ctx context.Context, r io.Reader) ([]string, error) {
	type answer struct {
		words []string
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		lines := bufio.NewScanner(io.LimitReader(r, mostWords))
		lines.Buffer(nil, mostWords)
		for lines.Scan() {
			a.words = append(a.words, strings.Fields(lines.Text())...)
		}
		a.err = lines.Err()
		answers <- a
	}()
	select {
	case a := <-answers:
		return a.words, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (e *environment) singleVersion(c *cli.Context, cl *target) error {
	s, err := cl.rollouts().Unique(c.Context, argument(c, 0))
	if err != nil {
		return err
	}
	for _, a := range s.Detached {
		if a.Why != "" {
			note(c, "%s does not count: %s", printable(a.Host), printable(a.Why))
		}
	}
	l := listingOf("version,hosts,life*,since", s.Others, func(o cluster.OtherVersion) []string {
		return []string{o.Version, text.FewOf(",", o.Examples, o.Hosts), "there", ""}
	})
	for _, a := range s.Detached {
		l.rows = append(l.rows, []string{a.Version, a.Host, string(a.Life), a.Arrived})
	}
	if err := e.printProblems(c, l, s); err != nil {
		return err
	}
	return singleAnswer(s)
}

// singleAnswer is nil if the version is the only one; that no host runs it is said.
func singleAnswer(s cluster.Uniqueness) error {
	if !s.Single && !s.Found {
		return &exitError{code: exitFailed, err: fmt.Errorf("no host runs version %s", s.Version)}
	}
	return answerOf(s.Single)
}

// localVersion prints or writes the version of the version file.
func (e *environment) localVersion(c *cli.Context) error {
	file, err := e.versionFile(c)
	if err != nil {
		return err
	}
	if args := arguments(c); len(args) == 1 {
		return converge.WriteVersionFile(file, args[0])
	}
	version, err := converge.ReadVersionFile(file)
	if errors.Is(err, cluster.ErrNoVersion) && e.format(c) == formatJSON {
		_ = e.writeJSON(c.App.Writer, versionAnswer{}) // the error counts
	}
	if err != nil {
		return err
	}
	return e.lines(c, "version", []string{version}, versionAnswer{version})
}

// notAtVersion answers `verify`: which hosts do not run the version of the first
// argument. Hosts are the other arguments, or what standard input holds. Without any
// host the error is errNoHosts.
func (e *environment) notAtVersion(c *cli.Context) ([]cluster.OtherHost, error) {
	args := arguments(c)
	if err := cluster.CheckVersion(args[0]); err != nil {
		return nil, err
	}
	names, err := e.hostArguments(c.Context, args[1:])
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errNoHosts
	}
	for _, name := range names {
		if err := cluster.CheckNode(name); err != nil {
			return nil, err
		}
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return nil, err
	}
	s, err := cl.LoadReports(c.Context)
	if err != nil {
		return nil, err
	}
	missing, err := e.takingPart(c, cl, args[0], names, s.HostsNotRunning(args[0], names))
	if err != nil {
		return nil, err
	}
	var silent []string
	for _, m := range missing {
		if m.Version == "" {
			silent = append(silent, m.Host)
		}
	}
	unknown, err := cl.UnknownHosts(c.Context, silent)
	for _, err := range unknown {
		note(c, "%v", err)
	}
	return missing, err
}

// takingPart returns those of the missing hosts that take part, with what keeps them from
// the version, and notes both on stderr.
func (e *environment) takingPart(c *cli.Context, cl *target, version string, names []string, missing []cluster.OtherHost) ([]cluster.OtherHost, error) {
	if len(missing) == 0 {
		return missing, nil
	}
	arrival, err := cl.rollouts().Arrival(c.Context, version)
	if errors.Is(err, consul.ErrUnreachable) || c.Context.Err() != nil {
		return nil, err
	}
	if err != nil { // then all count
		note(c, "it is not known who takes part: %v", err)
	}
	left := map[string]bool{}
	missing = slices.DeleteFunc(missing, func(m cluster.OtherHost) bool {
		if why := arrival.Apart[m.Host]; why != "" {
			left[m.Host] = true
			note(c, "%s is left out: %s", printable(m.Host), printable(why))
		}
		return left[m.Host]
	})
	if !slices.ContainsFunc(names, func(name string) bool { return !left[name] }) {
		return nil, &exitError{code: exitFailed, err: fmt.Errorf("none of the hosts takes part in an update")}
	}
	for i := range missing {
		m := &missing[i]
		at := slices.IndexFunc(arrival.Missing, func(a rollout.Missing) bool { return a.Node == m.Host && a.Lack != rollout.LackPending })
		if at >= 0 {
			m.Why = arrival.Missing[at].Reason
			note(c, "%s: %s", printable(m.Host), printable(m.Why))
		}
	}
	return missing, nil
}

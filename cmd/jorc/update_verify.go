package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
)

// elsewhere answers `verify`: which hosts do not run the version of the first
// argument. Hosts are the other arguments, or what standard input holds.
func (e *environment) elsewhere(c *cli.Context) (version string, hosts int, missing []cluster.OtherHost, err error) {
	args := arguments(c)
	if len(args) == 0 {
		return "", 0, nil, usagef(c, "missing argument VERSION")
	}
	version = args[0]
	if err := cluster.CheckVersion(version); err != nil {
		return version, 0, nil, err
	}
	names, err := e.hostArguments(c.Context, args[1:])
	if err != nil || len(names) == 0 {
		return version, 0, nil, err
	}
	for _, name := range names {
		if err := cluster.CheckNode(name); err != nil {
			return version, 0, nil, err
		}
	}
	ledger, client, _, err := e.ledger(c)
	if err != nil {
		return version, 0, nil, err
	}
	defer client.Close()
	s, err := ledger.LoadReports(c.Context)
	if err != nil {
		return version, len(names), nil, err
	}
	missing = s.HostsNotRunning(version, names)
	var silent []string
	for _, m := range missing {
		if m.Version == "" {
			silent = append(silent, m.Host)
		}
	}
	unknown, err := ledger.UnknownHosts(c.Context, silent)
	for _, err := range unknown {
		fmt.Fprintf(c.App.ErrWriter, "jorc: %v\n", err)
	}
	return version, len(names), missing, err
}

func (e *environment) verifyHosts(c *cli.Context) error {
	if _, err := e.format(c); err != nil {
		return err
	}
	_, hosts, missing, err := e.elsewhere(c)
	if err != nil {
		return err
	}
	l := listing{columns: []string{"host", "version"}}
	for _, m := range missing {
		l.rows = append(l.rows, []string{m.Host, orDash(m.Version)})
	}
	format, _ := e.value(c, "output")
	if len(missing) > 0 || format == formatJSON { // no output means no failure
		if err := e.print(c, l, append([]cluster.OtherHost{}, missing...)); err != nil {
			return err
		}
	}
	switch {
	case hosts == 0:
		return errNoHosts
	case len(missing) > 0:
		return &exitError{code: exitFailed}
	}
	return nil
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

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (e *environment) singleVersion(c *cli.Context) error {
	s, err := e.singleness(c)
	if err != nil {
		return err
	}
	l := listing{columns: []string{"version", "hosts", "life", "since"}, states: []string{"life"}}
	for _, o := range s.Others {
		named := strings.Join(o.Examples, ",")
		if o.Hosts > len(o.Examples) {
			named += fmt.Sprintf(" and %d more", o.Hosts-len(o.Examples))
		}
		l.rows = append(l.rows, []string{o.Version, named, "there", ""})
	}
	for _, a := range s.Detached {
		l.rows = append(l.rows, []string{a.Version, a.Host, string(a.Life), a.Arrived})
	}
	format, _ := e.value(c, "output")
	if len(l.rows) > 0 || format == formatJSON { // no output means no failure
		if err := e.print(c, l, s); err != nil {
			return err
		}
	}
	switch {
	case s.Single:
		return nil
	case !s.Found:
		return &exitError{code: exitFailed, err: fmt.Errorf("no host runs version %s", s.Version)}
	}
	return &exitError{code: exitFailed}
}

func (e *environment) singleness(c *cli.Context) (cluster.Uniqueness, error) {
	args := arguments(c)
	if len(args) != 1 {
		return cluster.Uniqueness{}, usagef(c, "missing argument VERSION")
	}
	if _, err := e.format(c); err != nil {
		return cluster.Uniqueness{}, err
	}
	ledger, client, _, err := e.ledger(c)
	if err != nil {
		return cluster.Uniqueness{}, err
	}
	defer client.Close()
	return ledger.UniqueVersion(c.Context, args[0])
}

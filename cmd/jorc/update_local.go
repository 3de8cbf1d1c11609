package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
)

// versionFile is the file with the version of this host: legacy, if that is not
// "" and the configuration names none.
func (e *environment) versionFile(c *cli.Context, legacy string) (string, error) {
	settings, err := e.config(c)
	if err != nil {
		return "", err
	}
	if legacy != "" && settings.DefaultVersionFile {
		return legacy, nil
	}
	return settings.VersionFile, nil
}

func (e *environment) localVersion(c *cli.Context) error {
	return e.readOrWriteLocal(c, "")
}

func (e *environment) readOrWriteLocal(c *cli.Context, legacy string) error {
	args := arguments(c)
	if len(args) > 1 {
		return usagef(c, "too many arguments: give one VERSION")
	}
	file, err := e.versionFile(c, legacy)
	if err != nil {
		return err
	}
	if len(args) == 1 {
		return cluster.WriteVersionFile(file, args[0])
	}
	version, err := cluster.ReadVersionFile(file)
	switch {
	case errors.Is(err, cluster.ErrNoVersion):
		if format, given := e.value(c, "output"); given && format == formatJSON {
			_ = e.writeJSON(c.App.Writer, versionAnswer{}) // the error counts
		}
		return err
	case err != nil:
		return err
	}
	return e.lines(c, "version", []string{version}, versionAnswer{version})
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

func (e *environment) pendingUpdate(c *cli.Context, legacy string) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if _, err := e.format(c); err != nil {
		return err
	}
	file, err := e.versionFile(c, legacy)
	if err != nil {
		return err
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	local, localErr := cluster.ReadVersionFile(file)
	desired, desiredErr := desired(c.Context, cl)
	if errors.Is(desiredErr, cluster.ErrNoCluster) {
		return &exitError{code: int(cluster.NoDesiredVersion), err: desiredErr}
	}
	if c.Context.Err() != nil {
		return desiredErr
	}
	for _, err := range []error{desiredErr, localErr} {
		if err != nil && !errors.Is(err, cluster.ErrNoVersion) {
			fmt.Fprintf(c.App.ErrWriter, "jorc: %v\n", err)
		}
	}
	p := cluster.PendingChangeOf(desired, desiredErr, local, localErr)
	err = e.lines(c, "answer", []string{p.String()}, pendingAnswer{p.String(), desired, local, int(p)})
	return &exitError{code: int(p), err: err}
}

// reportVersion reports for host, or for this one.
func (e *environment) reportVersion(c *cli.Context, host, legacy string) error {
	if err := noArguments(c); err != nil {
		return err
	}
	version := c.String("version")
	if !c.IsSet("version") {
		file, err := e.versionFile(c, legacy)
		if err != nil {
			return err
		}
		version, err = cluster.ReadVersionFile(file)
		if errors.Is(err, cluster.ErrNoVersion) {
			fmt.Fprintf(c.App.ErrWriter, "jorc: nothing to report: %v\n", err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	ledger, client, settings, err := e.ledger(c)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := cluster.CheckVersion(version); err != nil {
		return err
	}
	if host, err = hostNamed(c, client, settings, host); err != nil {
		return err
	}
	_, err = ledger.ReportVersion(c.Context, host, version)
	return err
}

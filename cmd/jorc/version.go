package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// build is what this program was built from.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Date     string `json:"date"` // of the commit, RFC 3339
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// stamped completes what the linker was given with what Go knows about a binary
// that was built without the Makefile.
func stamped(version, commit, date string) build {
	b := build{Version: version, Commit: commit, Date: date, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok && b.Version == "" {
		if v := info.Main.Version; v != "(devel)" {
			b.Version = v
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.time":
				b.Date = s.Value
			}
		}
	}
	for _, field := range []*string{&b.Version, &b.Commit, &b.Date} {
		if *field == "" {
			*field = "unknown"
		}
	}
	return b
}

func versionCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:   "version",
		Usage:  "print the version and build information",
		Action: env.printVersion,
	}
}

func (e *environment) printVersion(c *cli.Context) error {
	if len(arguments(c)) > 0 {
		return usagef(c, "no arguments expected")
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	b := e.build
	if format == formatTable {
		_, err := fmt.Fprintf(c.App.Writer, "jorc %s (commit %s, %s, %s, %s)\n", b.Version, b.Commit, b.Date, b.Go, b.Platform)
		return err
	}
	return e.print(c, listing{rows: [][]string{{b.Version, b.Commit, b.Date, b.Go, b.Platform}}}, b)
}

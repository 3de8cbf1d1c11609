package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/diagnostics"
	"github.com/jorc/jorc/internal/fleet"
)

func debugCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "debug",
		Usage: "write an archive for a bug report",
		Description: "The archive holds versions, the configuration, the findings of doctor, the agent's status, goroutines and last log lines, the cluster's last " +
			"events and its keys. Of these it holds names, states, numbers and times; values of params, keys, variables and secrets, commands, their outputs and URLs are " +
			"left out. The list in contents.json says what cannot be read, and why. Only the agent's user and root can read the agent's goroutines and log. " +
			"Only you can read the archive; read it before you send it to others.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "out", DefaultText: "jorc-debug-TIME.tar.gz", Usage: "write to `FILE`, which must not exist"},
			&cli.DurationFlag{Name: "timeout", Value: 20 * time.Second, Usage: "wait at most this long for each part"},
		},
		Action: env.debug,
	}
}

func (e *environment) debug(c *cli.Context) (err error) {
	within := c.Duration("timeout")
	if within <= 0 {
		return usagef(c, "--timeout is %v, but must be above 0", within)
	}
	now := time.Now().UTC()
	file := c.String("out")
	if file == "" {
		file = "jorc-debug-" + now.Format("20060102T150405Z") + ".tar.gz"
	}
	o := diagnostics.Options{
		Paths: e.configPaths(c), Environ: e.environ(), Build: e.build, Timeout: within, NoAgent: e.linuxOnly("jorc agent"), Now: now,
	}
	if o.Config, o.Problem, err = e.examined(c, o.Paths); err != nil {
		return err
	}
	if o.Client, err = consul.New(o.Config.Consul); err != nil {
		return err
	}
	defer o.Client.Close()
	o.Cluster = fleet.New(o.Client, o.Config.Prefix, o.Config.Cluster)

	parts := diagnostics.Collect(c.Context, o)
	if err := c.Context.Err(); err != nil {
		return err
	}
	if err := writeArchive(file, now, parts); err != nil {
		return err
	}
	l := listingOf("file,bytes,content,missing", parts, func(p diagnostics.Part) []string {
		return []string{p.Name, fmt.Sprint(p.Bytes), p.Content, p.Missing}
	})
	note(c, "wrote %s; read it before you send it to others", file)
	return e.print(c, l, struct {
		File  string             `json:"file"`
		Parts []diagnostics.Part `json:"parts"`
	}{file, parts})
}

// writeArchive writes the archive to a new file, which only its owner can read.
func writeArchive(file string, now time.Time, parts []diagnostics.Part) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	name := strings.TrimSuffix(filepath.Base(file), ".tar.gz")
	if err := errors.Join(diagnostics.Write(f, name, now, parts), f.Close()); err != nil {
		_ = os.Remove(file) // a part of it does not help
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/profile"
)

func editCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "edit",
		Usage: "change the document in an editor",
		Description: "Runs $EDITOR, $VISUAL or vi. What others changed meanwhile stays; where both changed the same in different ways nothing is written, " +
			"the difference is shown, and your version is kept in a file; exit 4.",
		Action: env.editProfile,
	}
}

func (e *environment) editProfile(c *cli.Context) error {
	if err := none(c); err != nil {
		return err
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	base, err := cl.Profile(c.Context)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "jorc-"+cl.Name()+"-*.json")
	if err != nil {
		return fmt.Errorf("create a file to edit: %w", err)
	}
	before := append(base.Indented(), '\n')
	_, err = file.Write(before)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("create a file to edit: %w", err)
	}
	if err := e.runEditor(c, file.Name()); err != nil {
		_ = os.Remove(file.Name()) // nothing of value is in it
		return err
	}
	after, err := os.ReadFile(file.Name())
	if err != nil {
		return fmt.Errorf("read the edited file: %w", err)
	}
	if bytes.Equal(before, after) {
		fmt.Fprintln(c.App.ErrWriter, "jorc: nothing changed")
		return os.Remove(file.Name())
	}
	if err := e.storeEdited(c, cl, base, after); err != nil {
		return fmt.Errorf("%w; your version is kept in %s", err, file.Name())
	}
	return os.Remove(file.Name())
}

// storeEdited carries over what the editor changed.
func (e *environment) storeEdited(c *cli.Context, cl *cluster.Cluster, base profile.Document, after []byte) error {
	err := e.changed(c)(cl.ChangeProfile(c.Context, func(ed *profile.Editor, theirs profile.Document) (profile.Document, error) {
		mine, err := ed.Import(base, after)
		if err != nil {
			return profile.Document{}, err
		}
		return ed.Merge(base, mine, theirs)
	}))
	var conflicts *profile.ConflictsError
	if errors.As(err, &conflicts) {
		fmt.Fprint(c.App.ErrWriter, conflicts.Report())
	}
	return err
}

// runEditor lets a person edit file. The editor stays in jorc's process group:
// only that may read from the terminal.
func (e *environment) runEditor(c *cli.Context, file string) error {
	editor := "vi"
	for _, name := range []string{"VISUAL", "EDITOR"} {
		if v := e.getenv(name); v != "" {
			editor = v
		}
	}
	cmd := exec.CommandContext(c.Context, "/bin/sh", "-c", editor+` "$1"`, "sh", file)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = e.stdin, underlying(c.App.Writer), underlying(c.App.ErrWriter)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the editor %q: %w: nothing was written", editor, err)
	}
	return nil
}

package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/command"
)

// rebootTimeout is how long the command that asks for a reboot may take.
const rebootTimeout = time.Minute

// rebooter returns what asks the system for a reboot of this host with args.
func rebooter(args []string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		res, err := command.Run(ctx, command.Command{Args: args, Timeout: rebootTimeout})
		switch {
		case err != nil:
			return fmt.Errorf("reboot this host: %w", err)
		case !res.OK():
			return fmt.Errorf("reboot this host: %q: exit code %d: %s", args, res.ExitCode, res.Output)
		}
		return nil
	}
}

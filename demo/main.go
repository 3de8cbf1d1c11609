// Command demo shows jorc's main job on real input, with times: services that
// register, a dependant that waits for them, and files that follow when one of
// them is killed and comes back. `make demo` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\njorc demo: %v\n", err)
		os.Exit(1)
	}
}

// run is the demo, or one of the programs that take part in it.
func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 3 && args[0] == "serve":
		return serve(ctx, args[1], args[2], os.Stdout)
	case len(args) == 2 && args[0] == "app":
		return app(ctx, args[1], os.Stdout)
	}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	jorc := flags.String("jorc", "bin/jorc", "`path` of jorc")
	consul := flags.String("consul", "bin/consul", "`path` of Consul")
	if err := flags.Parse(args); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p := programs{self: self}
	if p.jorc, err = filepath.Abs(*jorc); err != nil {
		return err
	}
	if p.consul, err = exec.LookPath(*consul); err != nil {
		return fmt.Errorf("%w: 'make consul' provides it", err)
	}
	if p.consul, err = filepath.Abs(p.consul); err != nil {
		return err
	}
	return show(ctx, p, os.Stdout)
}

// Package legacy has what only old systems need: the names that existing host scripts use, the flags in front of
// them, and the calls of drpcli. The command tree takes all of it from Commands, Front and Drpcli. Most names
// mean a command of jorc, which Program carries out.
package legacy

import (
	"cmp"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/doctor"
	"github.com/jorc/jorc/internal/fleet"
)

// Program is the jorc that the old names belong to.
type Program interface {
	// Do carries out another command in place of that of c. Flags that both have keep their values.
	Do(c *cli.Context, command Command) error
	// Open returns the cluster that flags and environment name, or the one called name when that is not empty.
	Open(c *cli.Context, name string) (Target, error)
	// Node returns the node called name, which must exist, or that of this host when name is empty.
	Node(c *cli.Context, t Target, name string) (string, error)
	// Health lists this host's failing checks and what more returns.
	Health(c *cli.Context, more func() ([]doctor.CheckState, error)) error
}

// Command is a command of jorc as it is to be carried out.
type Command struct {
	Name           string            // "update report"
	Args           []string          // nil: those of the old name
	Flags          map[string]string // of the command, and global ones
	Stdout, Stderr io.Writer         // nil: those of the program
	VersionFile    string            // this host's version file where nothing names one, below /etc; empty: jorc's
}

// Target is a cluster, and how it was reached.
type Target struct {
	*fleet.Cluster
	Client   *consul.Client
	Settings *config.Config
}

// category marks the commands of Commands.
const category = "names that existing host scripts use"

// Is reports whether c bears an old name.
func Is(c *cli.Command) bool { return c != nil && c.Category == category }

// Front returns the command whose flags may stand in front of an old name: the address of the Consul agent, and a
// token that is accepted and ignored.
func Front() *cli.Command {
	return &cli.Command{Flags: []cli.Flag{&cli.StringFlag{Name: "host"}, &cli.StringFlag{Name: "port"}, &cli.StringFlag{Name: "discovery_token"}}}
}

// Global returns what flags of Front mean as global flags of jorc: --host=ADDR and --port=N are the address
// of Consul's API.
func Global(flags []string) []string {
	values := map[string]string{}
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		values[name] = value
	}
	host, port := values["--host"], values["--port"]
	if host == "" && port == "" {
		return nil
	}
	return []string{"--http-addr=" + net.JoinHostPort(cmp.Or(host, "127.0.0.1"), cmp.Or(port, "8500"))}
}

// arguments are those of c: a "--" only means that no flags follow.
func arguments(c *cli.Context) []string {
	args := slices.Clone(c.Args().Slice())
	if i := slices.Index(args, "--"); i >= 0 {
		args = slices.Delete(args, i, i+1)
	}
	return args
}

// argument is the argument at index i; empty: it was not given.
func argument(c *cli.Context, i int) string {
	if args := arguments(c); i < len(args) {
		return args[i]
	}
	return ""
}

// usage makes err an error in how the command of c was called.
func usage(c *cli.Context, err error) error { return c.Command.OnUsageError(c, err, false) }

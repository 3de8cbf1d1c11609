//go:build linux

package fleettest

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// role is what begins the first argument of a test binary that is to be
// something else: a program that hosts of the fleet run.
const role = "role:"

// Main is for TestMain: it runs the tests, or one of the programs that hosts
// run as `$SELF role:NAME ARG…`, those of this package or others, and returns the exit code.
func Main(m *testing.M, stderr io.Writer, programs map[string]func(args []string) error) int {
	if len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], role) {
		return m.Run()
	}
	name := strings.TrimPrefix(os.Args[1], role)
	program := programs[name]
	switch name {
	case "web":
		program = WebServer
	case "drain":
		program = Drain
	case "answers":
		program = Answers
	}
	if program == nil {
		fmt.Fprintf(stderr, "there is no program %q\n", name)
		return 2
	}
	if err := program(os.Args[2:]); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

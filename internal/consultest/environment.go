package consultest

import (
	"os"
	"slices"
	"strings"
)

// NoConfig, in the environment of a program under test, keeps it from reading
// the machine's own configuration, /etc/jorc.
const NoConfig = "JORC_CONFIG=" + os.DevNull

// programs are variables that name programs and directories for tests; variables that
// begin with JORC_TEST_ are for children of tests.
var programs = []string{"CONSUL_BIN", "CONSUL_TEMPLATE_BIN", "JORC_BIN", "JORC_FLEET_DIR"}

// init keeps tests, and the programs that inherit their environment, apart from
// the jorc, Consul and Vault of the machine that they run on.
func init() {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		return // a test binary that a test runs as another program
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		for _, prefix := range []string{"JORC_", "CONSUL_", "VAULT_"} {
			if strings.HasPrefix(name, prefix) && !strings.HasPrefix(name, "JORC_TEST_") && !slices.Contains(programs, name) {
				_ = os.Unsetenv(name) // fails for names only that no environment has
			}
		}
	}
	name, value, _ := strings.Cut(NoConfig, "=")
	if err := os.Setenv(name, value); err != nil {
		panic(err)
	}
}

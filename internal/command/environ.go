package command

import (
	"fmt"
	"os"
	"os/user"
	"strings"
)

// secrets are the variables that no command inherits: credentials, and systemd's
// variables, with which a command could notify systemd on behalf of jorc.
var secrets = [...]string{
	"AWS_ACCESS_KEY_ID", // with this key but no secret, the AWS tools do not search for other credentials
	"AWS_SECRET_ACCESS_KEY",
	"AWS_SESSION_TOKEN",
	"CONSUL_HTTP_TOKEN",
	"CONSUL_HTTP_TOKEN_FILE",
	"CONSUL_HTTP_AUTH",
	"CONSUL_TOKEN",
	"VAULT_TOKEN",
	"VAULT_TOKEN_FILE",
	"LISTEN_FDNAMES",
	"LISTEN_FDS",
	"LISTEN_PID",
	"NOTIFY_SOCKET",
	"WATCHDOG_PID",
	"WATCHDOG_USEC",
}

// Environ returns jorc's own environment without Consul's and Vault's tokens,
// AWS's keys and systemd's sockets, followed by extra ("NAME=value"), which wins.
func Environ(extra ...string) []string {
	all := os.Environ()
	env := make([]string, 0, len(all)+len(extra))
	for _, kv := range all {
		name, _, _ := strings.Cut(kv, "=")
		if !IsSecret(name) {
			env = append(env, kv)
		}
	}
	return append(env, extra...)
}

// IsSecret reports whether no command inherits a variable.
func IsSecret(name string) bool {
	for _, s := range secrets {
		if name == s {
			return true
		}
	}
	return false
}

// LookupUser finds a user by name or by number.
func LookupUser(name string) (*user.User, error) {
	u, err := user.Lookup(name)
	if err == nil {
		return u, nil
	}
	if byID, idErr := user.LookupId(name); idErr == nil {
		return byID, nil
	}
	return nil, fmt.Errorf("user %q: %w", name, err)
}

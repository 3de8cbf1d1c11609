package command

import (
	"os"
	"strings"
)

// secrets are the variables that no command inherits, and those that would
// let a command speak to systemd in jorc's name.
var secrets = [...]string{
	"AWS_ACCESS_KEY_ID", // without its secret the AWS tools refuse to look elsewhere
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

// Environ is jorc's own environment without Consul's and Vault's tokens,
// AWS's keys and systemd's sockets, followed by extra ("NAME=value"), which wins.
func Environ(extra ...string) []string {
	all := os.Environ()
	env := make([]string, 0, len(all)+len(extra))
	for _, kv := range all {
		name, _, _ := strings.Cut(kv, "=")
		if !secret(name) {
			env = append(env, kv)
		}
	}
	return append(env, extra...)
}

func secret(name string) bool {
	for _, s := range secrets {
		if name == s {
			return true
		}
	}
	return false
}

package config_test

import (
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
)

// TestForeignNames: a setting with consul-template's name says what jorc calls it.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, src, want string }{
		{"a.hcl", "template \"x\" {\n  left_delimiter = \"[[\"\n}\n", `jorc calls this "left_delim".`},
		{"a.hcl", "template \"x\" {\n  command = \"true\"\n}\n", `jorc calls this "reload".`},
		{"a.hcl", "template \"x\" {\n  wait {\n    min = \"1s\"\n  }\n}\n", `wait = "min:max"`},
		{"a.hcl", "template \"x\" {\n  exec {\n  }\n}\n", `jorc calls this "reload".`},
		{"a.hcl", "consul {\n  ssl {\n  }\n}\n", `"ca_file"`},
		{"a.hcl", "vault {\n  vault_agent_token_file = \"/t\"\n}\n", `jorc calls this "token_file".`},
		{"a.hcl", "template \"x\" {\n  destination_perms = \"0600\"\n}\n", `jorc calls this "perms".`},
		{"a.hcl", "exec {\n  command = [\"x\"]\n}\n", `jorc calls this a "process" block.`},
		{"a.hcl", "process \"x\" {\n  command = [\"x\"]\n  env {\n    whitelist = [\"A\"]\n  }\n}\n", `jorc calls this "allowlist".`},
		{"a.hcl", "process \"x\" {\n  command = [\"x\"]\n  env {\n    prefix \"a\" {\n      no_prefix = true\n    }\n  }\n}\n", `jorc calls this "format"`},
		{"a.hcl", "consul {\n  auth {\n  }\n}\n", "consul { auth_file }"},
		{"a.hcl", "vault {\n  renew_token = true\n}\n", "does not log in to Vault"},
		{"a.hcl", "nomad {\n}\n", "does not read from Nomad"},
		{"a.hcl", "syslog {\n}\n", "jorc logs to stderr"},
		{"a.json", `{"template": {"x": {"create_dest_dirs": true}}}`, `jorc calls this "create_dirs".`},
	} {
		_, err := config.Load([]string{write(t, tt.name, tt.src)}, config.Options{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %v, want %q", tt.src, err, tt.want)
		}
	}
	_, err := config.Load([]string{write(t, "a.hcl", "service \"x\" {\n  command = \"true\"\n}\n")}, config.Options{})
	if err == nil || strings.Contains(err.Error(), "jorc migrate") {
		t.Errorf("command in a service: got %v, want no hint at consul-template", err)
	}
}

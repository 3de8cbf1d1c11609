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
		{"a.hcl", "template \"x\" {\n  left_delimiter = \"[[\"\n}\n", `is "left_delim" in jorc`},
		{"a.hcl", "template \"x\" {\n  command = \"true\"\n}\n", `is "reload" in jorc`},
		{"a.hcl", "template \"x\" {\n  wait {\n    min = \"1s\"\n  }\n}\n", `wait = "min:max"`},
		{"a.hcl", "template \"x\" {\n  exec {\n  }\n}\n", `is "reload" in jorc`},
		{"a.hcl", "consul {\n  ssl {\n  }\n}\n", `"ca_file"`},
		{"a.hcl", "vault {\n  vault_agent_token_file = \"/t\"\n}\n", `is "token_file" in jorc`},
		{"a.hcl", "syslog {\n}\n", "jorc logs to stderr"},
		{"a.json", `{"template": {"x": {"create_dest_dirs": true}}}`, `is "create_dirs" in jorc`},
	} {
		_, err := config.Load([]string{write(t, tt.name, tt.src)}, config.Options{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %v, want %q", tt.src, err, tt.want)
		}
	}
	_, err := config.Load([]string{write(t, "a.hcl", "service \"x\" {\n  command = \"true\"\n}\n")}, config.Options{})
	if err == nil || strings.Contains(err.Error(), "consul-template") {
		t.Errorf("command in a service: got %v, want no hint at consul-template", err)
	}
}

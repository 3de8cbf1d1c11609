package config

import (
	"regexp"

	"github.com/hashicorp/hcl/v2"
)

// foreign says what settings of consul-template are in jorc, by their block.
var foreign = map[string]map[string]string{
	"": {
		"default_delimiters": `is "left_delim" and "right_delim" in template blocks in jorc`,
		"deduplicate":        "is not needed: each host renders its files itself",
		"exec":               "has no equivalent: jorc does not supervise a child process",
		"syslog":             "is not needed: jorc logs to stderr",
		"log_file":           "is not needed: jorc logs to stderr",
		"wait":               `is "wait" in template blocks in jorc`,
	},
	"template": {
		"command":            `is "reload" in jorc`,
		"command_timeout":    `is "reload_timeout" in jorc`,
		"create_dest_dirs":   `is "create_dirs" in jorc`,
		"exec":               `is "reload" in jorc`,
		"function_blacklist": `is "function_denylist" in jorc`,
		"gid":                `is "group" in jorc`,
		"left_delimiter":     `is "left_delim" in jorc`,
		"right_delimiter":    `is "right_delim" in jorc`,
		"uid":                `is "user" in jorc`,
		"wait":               `is wait = "min:max" in jorc`,
	},
	"consul": {
		"ssl": `is "ca_file", "client_cert" and "client_key", with an https:// address in jorc`,
	},
	"vault": {
		"ssl":                    `is "ca_file" in jorc`,
		"vault_agent_token_file": `is "token_file" in jorc`,
	},
}

// unknownName finds the name in hcl's messages about unknown arguments and blocks.
var unknownName = regexp.MustCompile(`^(?:An argument named|Blocks of type|No argument or block type is named) "([^"]+)"`)

// explainForeign adds jorc's name to problems with settings of consul-template.
func explainForeign(diags hcl.Diagnostics, into any) {
	block, known := "", true
	switch into.(type) {
	case *Config:
	case *Template:
		block = "template"
	case *Consul:
		block = "consul"
	case *Vault:
		block = "vault"
	default:
		known = false
	}
	if !known {
		return
	}
	for _, diag := range diags {
		m := unknownName.FindStringSubmatch(diag.Detail)
		if m == nil {
			continue
		}
		if name := foreign[block][m[1]]; name != "" {
			diag.Detail += " Consul-template's " + m[1] + " " + name + "; 'jorc migrate consul-template' converts a whole configuration."
		}
	}
}

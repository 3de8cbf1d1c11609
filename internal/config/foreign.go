package config

import (
	"sync"

	"github.com/hashicorp/hcl/v2"

	"github.com/jorc/jorc/internal/text"
)

// renamed are jorc's names of settings that consul-template, envconsul or older
// versions of them call otherwise, by their block.
var renamed = sync.OnceValue(func() map[string]map[string]string {
	return map[string]map[string]string{
		"": {
			"default_delimiters": `"left_delim" and "right_delim" in template blocks`,
			"exec":               `a "process" block`,
			"wait":               `"wait" in template blocks`,
			"kill_signal":        `"kill_signal" in process blocks`,
			"reload_signal":      `"reload_signal" in process blocks`,
			"splay":              `"splay" in process blocks`,
			"token":              `"token_file" in the consul block`,
			"ssl":                `"ca_file", "client_cert" and "client_key" in the consul block`,
			"prefix":             `"prefix" in the env block of a process`, // an argument in jorc, a block in envconsul
			"prefixes":           `"prefix" in the env block of a process`,
			"secret":             `"secret" in the env block of a process`,
			"pristine":           `"pristine" in the env block of a process`,
			"sanitize":           `"sanitize" in the env block of a process`,
			"upcase":             `"upcase" in the env block of a process`,
		},
		"template": {
			"command":            `"reload"`,
			"command_timeout":    `"reload_timeout"`,
			"create_dest_dirs":   `"create_dirs"`,
			"destination_perms":  `"perms"`,
			"mode":               `"perms"`,
			"permissions":        `"perms"`,
			"owner":              `"user"`,
			"exec":               `"reload"`,
			"function_blacklist": `"function_denylist"`,
			"gid":                `"group"`,
			"left_delimiter":     `"left_delim"`,
			"right_delimiter":    `"right_delim"`,
			"uid":                `"user"`,
			"wait":               `wait = "min:max"`,
			"splay":              `"slot" and "max_parallel", which limit how many hosts reload at once`,
		},
		"consul": {
			"ssl":  `"ca_file", "client_cert" and "client_key", with an https:// address`,
			"addr": `"address"`,
		},
		"vault": {
			"ssl":                    `"ca_file"`,
			"vault_agent_token_file": `"token_file"`,
			"addr":                   `"address"`,
		},
		"process": {
			"exec":        `"command"`,
			"pristine":    `"pristine" in the block env`,
			"custom":      `"custom" in the block env`,
			"kill_delay":  `"kill_timeout"`,
			"stop_signal": `"kill_signal"`,
		},
		"env": {
			"whitelist": `"allowlist"`,
			"blacklist": `"denylist"`,
		},
		"source": {
			"no_prefix": `"format", which contains the path where names begin with it`,
			"path":      `the label of the block`,
		},
	}
})

// absent says what becomes of settings that jorc does not have, by their block.
var absent = sync.OnceValue(func() map[string]map[string]string {
	return map[string]map[string]string{
		"": {
			"auth":                 noBasicAuth,
			"block_query_wait":     "jorc chooses the length of its blocking queries.",
			"deduplicate":          "It is not needed: each host renders its files itself.",
			"err_on_failed_lookup": "A template that misses data waits for it.",
			"log_file":             "It is not needed: jorc logs to stderr.",
			"max_stale":            "It is not needed: jorc follows changes with blocking queries.",
			"nomad":                "jorc does not read from Nomad.",
			"once":                 "Use jorc render, or jorc agent --once.",
			"parseonly":            "Use jorc config validate.",
			"pid_file":             "Use systemctl reload jorc and systemctl stop jorc.",
			"retry":                noRetry,
			"syslog":               "It is not needed: jorc logs to stderr.",
			"template_error_fatal": "A template that fails never ends jorc.",
		},
		"template": {"error_fatal": "A template that fails never ends jorc."},
		"consul":   {"auth": noBasicAuth, "retry": noRetry, "transport": noTransport},
		"vault": {
			"client_user_agent":              "It is not needed.",
			"default_lease_duration":         "A secret without a lease is read again after 5 minutes.",
			"enabled":                        "Without a vault block, Vault is not used.",
			"grace":                          noRetry,
			"k8s_auth_role_name":             noLogin,
			"k8s_service_account_token":      noLogin,
			"k8s_service_account_token_path": noLogin,
			"k8s_service_mount_path":         noLogin,
			"lease_renewal_threshold":        "A lease that cannot be renewed, and a certificate, is used for 60 % of its time.",
			"renew_token":                    noLogin,
			"retry":                          noRetry,
			"transport":                      noTransport,
			"unwrap_token":                   noLogin,
		},
		"process": {"timeout": "A process runs until it ends.", "enabled": "Leave out the block."},
	}
})

const (
	noBasicAuth = "Write USER:PASSWORD to a file, and name it with consul { auth_file }."
	noRetry     = "It is not needed: jorc repeats failed requests with growing pauses."
	noTransport = "It is not needed: consul { max_connections } limits jorc's connections."
	noLogin     = "jorc does not log in to Vault: let an agent of Vault write the token to token_file."
)

// unknownName finds the name in hcl's messages about unknown arguments and blocks.
var unknownName = text.Pattern(`^(?:An argument named|Blocks of type|No argument or block type is named) "([^"]+)"`)

// explainForeign adds jorc's name to problems with settings of consul-template and
// envconsul.
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
	case *Process:
		block = "process"
	case *ProcessEnv:
		block = "env"
	case *EnvSource:
		block = "source"
	default:
		known = false
	}
	if !known {
		return
	}
	for _, diag := range diags {
		m := unknownName().FindStringSubmatch(diag.Detail)
		if m == nil {
			continue
		}
		const convert = " 'jorc migrate' converts a whole configuration of consul-template or envconsul."
		if name := renamed()[block][m[1]]; name != "" {
			diag.Detail += " jorc calls this " + name + "." + convert
		} else if why := absent()[block][m[1]]; why != "" {
			diag.Detail += " " + why + convert
		}
	}
}

package migrate

import (
	"strings"
	"sync"
)

// rule is the counterpart of one setting of consul-template.
type rule struct {
	to     string // the setting of jorc; empty: jorc has no such setting
	kind   Kind   // of the finding for a setting that was not converted
	reason string
	secret bool // the value and the comment above it appear nowhere
	same   any  // the value that changes nothing for jorc; nil: false and ""
}

func becomes(to string) rule       { return rule{to: to} }
func notNeeded(reason string) rule { return rule{kind: NotNeeded, reason: reason} }
func missing(reason string) rule   { return rule{kind: NoEquivalent, reason: reason} }

func (r rule) asSecret() rule {
	r.secret = true
	return r
}

// as returns the rule for a setting of which jorc behaves like value.
func (r rule) as(value any) rule {
	r.same = value
	return r
}

// isDefault reports whether jorc behaves like that value without a setting.
func (r rule) isDefault(value any) bool {
	if r.same != nil {
		return value == r.same
	}
	return value == false || value == ""
}

const (
	retries    = "jorc repeats failed requests until they succeed, with growing pauses"
	noRetries  = "jorc always repeats failed requests, with growing pauses, and never ends for them"
	notChecked = "certificates are checked"
	transport  = "jorc limits its connections by consul { max_connections } and keeps them open"
	inFile     = "jorc reads secrets from files only; write it to the file that token_file names, with mode 0600"
	basicAuth  = "jorc reads secrets from files only; write USER:PASSWORD to the file that auth_file names, with mode 0600"
	journal    = "jorc logs to stderr, which systemd's journal keeps; log_json = true writes JSON lines"
	vaultTLS   = "jorc's vault block has address, namespace, token_file and ca_file only"
	vaultK8s   = "jorc does not log in to Vault; let an agent of Vault write the token to token_file"
	noNomad    = "jorc does not read from Nomad"
	commandEnv = "a reload runs with jorc's environment; set variables in the command"
)

// tool is a program whose configuration is converted.
type tool struct {
	name string
	// rules has each setting, in lower case, with dots between blocks. A name that
	// ends with ".*" covers all settings below it.
	rules func() map[string]rule
	// repeated are blocks of which each one counts.
	repeated []string
	// moved are names that older versions have, and their present ones.
	moved map[string]string
	// killSignal is what the tool sends to its child without a setting.
	killSignal string
}

var consulTemplate = &tool{name: "consul-template", rules: sync.OnceValue(consulTemplateRules), repeated: []string{"template"}, killSignal: "SIGINT"}

// consulTemplateRules returns the settings of consul-template.
func consulTemplateRules() map[string]rule {
	return map[string]rule{
		"consul.address":    becomes("consul.address"),
		"consul.namespace":  becomes("consul.namespace"),
		"consul.token":      {to: "consul.token_file", kind: NoEquivalent, reason: inFile, secret: true},
		"consul.token_file": becomes("consul.token_file"),

		"consul.auth.enabled":  becomes("consul.auth_file"),
		"consul.auth.username": {to: "consul.auth_file", kind: NoEquivalent, reason: basicAuth, secret: true},
		"consul.auth.password": {to: "consul.auth_file", kind: NoEquivalent, reason: basicAuth, secret: true},

		"consul.retry.*":           notNeeded(retries),
		"consul.retry.enabled":     missing(noRetries).as(true),
		"consul.transport.*":       notNeeded(transport),
		"consul.ssl.enabled":       becomes("consul.address (https://)"),
		"consul.ssl.ca_cert":       becomes("consul.ca_file"),
		"consul.ssl.ca_path":       becomes("consul.ca_path"),
		"consul.ssl.cert":          becomes("consul.client_cert"),
		"consul.ssl.key":           becomes("consul.client_key"),
		"consul.ssl.verify":        {to: "consul.address (https://)", kind: NoEquivalent, reason: notChecked + "; for a test only, set CONSUL_HTTP_SSL_VERIFY=false in jorc's environment", same: true},
		"consul.ssl.server_name":   becomes("consul.tls_server_name"),
		"consul.ssl.ca_cert_bytes": missing("write the certificate to a file and name it with consul { ca_file }"),

		"vault.address":                        becomes("vault.address"),
		"vault.namespace":                      becomes("vault.namespace"),
		"vault.token":                          {to: "vault.token_file", kind: NoEquivalent, reason: inFile, secret: true},
		"vault.vault_agent_token_file":         becomes("vault.token_file"),
		"vault.enabled":                        becomes("vault"),
		"vault.ssl.ca_cert":                    becomes("vault.ca_file"),
		"vault.ssl.enabled":                    notNeeded("the address says whether TLS is used"),
		"vault.ssl.verify":                     missing(notChecked + "; name the CA with vault { ca_file }").as(true),
		"vault.ssl.*":                          missing(vaultTLS),
		"vault.unwrap_token":                   missing("jorc reads a token that is not wrapped"),
		"vault.renew_token":                    missing("jorc does not renew the token; let an agent of Vault write it to token_file"),
		"vault.client_user_agent":              notNeeded("it does not change what is rendered"),
		"vault.retry.*":                        notNeeded(retries),
		"vault.retry.enabled":                  missing(noRetries).as(true),
		"vault.transport.*":                    notNeeded(transport),
		"vault.default_lease_duration":         missing("a secret without a lease is read again after 5 minutes, consul-template's default"),
		"vault.lease_renewal_threshold":        missing("a lease that cannot be renewed, and a certificate, is used for 60 % of its time, before an alert says that a third is left"),
		"vault.k8s_auth_role_name":             missing(vaultK8s),
		"vault.k8s_service_account_token_path": missing(vaultK8s),
		"vault.k8s_service_account_token":      missing(vaultK8s).asSecret(),
		"vault.k8s_service_mount_path":         missing(vaultK8s),

		"nomad.token":         missing(noNomad).asSecret(),
		"nomad.auth_password": missing(noNomad).asSecret(),
		"nomad.*":             missing(noNomad),

		"deduplicate.*":            notNeeded("each host reads data that several templates use once, and renders it itself"),
		"default_delimiters.left":  becomes("template.left_delim"),
		"default_delimiters.right": becomes("template.right_delim"),
		"exec.command":             becomes("process.command"),
		"exec.enabled":             becomes("process"),
		"exec.kill_signal":         becomes("process.kill_signal"),
		"exec.kill_timeout":        becomes("process.kill_timeout"),
		"exec.reload_signal":       becomes("process.reload_signal"),
		"exec.splay":               becomes("process.splay"),
		"exec.timeout":             notNeeded("a process runs until it ends; in exec mode consul-template ignores it, too"),
		"exec.env.pristine":        becomes("process.env.pristine"),
		"exec.env.custom":          {to: "process.env.custom", secret: true},
		"exec.env.allowlist":       becomes("process.env.allowlist"),
		"exec.env.whitelist":       becomes("process.env.allowlist"),
		"exec.env.denylist":        becomes("process.env.denylist"),
		"exec.env.blacklist":       becomes("process.env.denylist"),
		"kill_signal":              missing("jorc stops on SIGTERM and SIGINT").as("SIGTERM"),
		"reload_signal":            missing("jorc reads its configuration again on SIGHUP").as("SIGHUP"),
		"log_level":                becomes("log_level"),
		"log_file.path":            missing(journal),
		"log_file.*":               notNeeded(journal),
		"syslog.enabled":           missing(journal),
		"syslog.*":                 notNeeded(journal),
		"max_stale":                notNeeded("jorc follows Consul's changes with blocking queries and chooses the consistency itself"),
		"block_query_wait":         notNeeded("jorc chooses the length of its blocking queries"),
		"pid_file":                 missing("use systemctl reload jorc and systemctl stop jorc"),
		"template_error_fatal":     {kind: NoEquivalent, reason: "a template that fails never ends jorc: its status shows the error, the other templates continue"},
		"err_on_failed_lookup":     missing("a template that misses data waits for it; jorc render --timeout limits the wait"),
		"once":                     missing("jorc agent --once and jorc render render once; jorc agent runs until it is stopped"),
		"parseonly":                missing("jorc config validate checks a configuration"),
		"dry":                      missing("jorc render --diff writes nothing"),
		"v":                        notNeeded("jorc version"),
		"version":                  notNeeded("jorc version"),
		"wait.min":                 becomes("template.wait"),
		"wait.max":                 becomes("template.wait"),
		"wait.bool":                becomes("template.wait"),

		"template.source":               becomes("template.source"),
		"template.contents":             becomes("template.contents"),
		"template.destination":          becomes("template.destination"),
		"template.create_dest_dirs":     becomes("template.create_dirs"),
		"template.perms":                becomes("template.perms"),
		"template.user":                 becomes("template.user"),
		"template.uid":                  becomes("template.user"),
		"template.group":                becomes("template.group"),
		"template.gid":                  becomes("template.group"),
		"template.left_delimiter":       becomes("template.left_delim"),
		"template.right_delimiter":      becomes("template.right_delim"),
		"template.error_on_missing_key": becomes("template.error_on_missing_key"),
		"template.function_denylist":    becomes("template.function_denylist"),
		"template.function_blacklist":   becomes("template.function_denylist"),
		"template.sandbox_path":         becomes("template.sandbox_path"),
		"template.wait.min":             becomes("template.wait"),
		"template.wait.max":             becomes("template.wait"),
		"template.wait.bool":            becomes("template.wait"),
		"template.command":              becomes("template.reload"),
		"template.command_timeout":      becomes("template.reload_timeout"),
		"template.exec.command":         becomes("template.reload"),
		"template.exec.timeout":         becomes("template.reload_timeout"),
		"template.exec.env.custom":      {to: "template.reload (env NAME=VALUE …)", secret: true},
		"template.exec.env.pristine":    becomes("template.reload (env -i)"),
		"template.exec.env.*":           missing(commandEnv),
		"template.exec.enabled":         notNeeded("consul-template ignores it, too: a template with a command runs it"),
		"template.exec.splay":           missing("use slot and max_parallel: they limit how many hosts reload at once"),
		"template.exec.kill_signal":     missing("a reload that exceeds its timeout gets SIGTERM, then SIGKILL"),
		"template.exec.kill_timeout":    missing("a reload that exceeds its timeout gets SIGTERM, then SIGKILL"),
		"template.exec.reload_signal":   missing("a reload is a command that ends"),
		"template.backup":               becomes("template.backup"),
		"template.error_fatal":          {kind: NoEquivalent, reason: "a template that fails never ends jorc: its status shows the error, the other templates continue"},
	}
}

// rule returns the rule of a setting.
func (t *tool) rule(path string) (rule, bool) {
	if r, ok := t.rules()[path]; ok {
		return r, true
	}
	for parent := path; ; {
		i := strings.LastIndexByte(parent, '.')
		if i < 0 {
			return rule{}, false
		}
		parent = parent[:i]
		if r, ok := t.rules()[parent+".*"]; ok {
			return r, true
		}
	}
}

// isBlock reports whether the tool has a block of that name.
func (t *tool) isBlock(path string) bool {
	for known := range t.rules() {
		if strings.HasPrefix(known, path+".") {
			return true
		}
	}
	return false
}

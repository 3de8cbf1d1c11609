package migrate

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// convert writes jorc's configuration and names what is not in it.
func (c *converter) convert() (*Result, error) {
	out := &output{}
	out.comment("Written by 'jorc migrate " + c.tool.name + "'.")
	c.logging(out)
	c.consul(out)
	c.vault(out)
	c.signals()
	c.defaults()
	blocks := &output{}
	names := map[string]bool{}
	written := 0
	for _, t := range c.blocks {
		if t.name == "template" && t.template(blocks, names) {
			written++
		}
	}
	processes := c.process(blocks)
	if written == 0 && c.tool == consulTemplate {
		c.noTemplates()
	}
	c.templateOptions(out)
	c.global.rest()
	for _, t := range c.blocks {
		t.rest()
	}
	out.append(blocks, 0)
	return &Result{Config: out.bytes(), Templates: written, Processes: processes, Findings: sorted(c.findings)}, nil
}

// logging converts log_level: "err" is the only name that differs.
func (c *converter) logging(out *output) {
	of, level := c.global.text("log_level")
	if of == nil {
		return
	}
	switch level = strings.ToLower(level); level {
	case "err":
		level = "error"
	case "trace", "debug", "info", "warn":
	default:
		c.global.find(of, NoEquivalent, "%s has no such level", c.tool.name)
		return
	}
	out.line()
	out.attribute("log_level", quote(level), of)
}

// consul converts the consul block.
func (c *converter) consul(out *output) {
	g := c.global
	var b output
	address, value := g.text("consul.address")
	secure := c.secure()
	switch {
	case address != nil && strings.Contains(value, "@"):
		g.find(address, NoEquivalent, "the address contains a user or password; %s", basicAuth)
	case secure:
		b.attribute("address", quote(withTLS(value)), address)
	case address != nil:
		b.attribute("address", quote(value), address)
	}
	b.string("namespace", g, "consul.namespace")
	c.token(&b, "consul.token", "consul.token_file", "/etc/jorc/consul.token")
	c.auth(&b)
	b.path("ca_file", g, "consul.ssl.ca_cert")
	b.path("ca_path", g, "consul.ssl.ca_path")
	if cert, path := g.text("consul.ssl.cert"); cert != nil {
		b.attribute("client_cert", quote(c.absolute(cert, path)), cert)
		if g.get("consul.ssl.key") == nil { // the certificate's file contains the key
			b.attribute("client_key", quote(c.absolute(cert, path)), nil)
		}
	}
	b.path("client_key", g, "consul.ssl.key")
	b.string("tls_server_name", g, "consul.ssl.server_name")
	if of := g.get("consul.ssl.verify"); of != nil && of.value == false && !secure && !strings.HasPrefix(value, "https://") {
		g.find(of, NotNeeded, "TLS is not used")
	}
	out.block("consul", &b)
}

// secure reports whether consul-template uses TLS for Consul: by itself if there is
// any setting of TLS.
func (c *converter) secure() bool {
	g := c.global
	enabled, on := g.flag("consul.ssl.enabled")
	verify := g.get("consul.ssl.verify")
	if verify != nil && verify.value == true {
		verify.used = true
	}
	if enabled != nil {
		return on
	}
	if verify != nil && verify.value == true {
		return true
	}
	for _, name := range []string{"cert", "ca_cert", "ca_cert_bytes", "ca_path", "key", "server_name"} {
		if of := g.get("consul.ssl." + name); of != nil && of.value != "" {
			return true
		}
	}
	return false
}

// withTLS is the address with https, unless it is a socket.
func withTLS(address string) string {
	if address == "" {
		address = "127.0.0.1:8500"
	}
	rest, plain := strings.CutPrefix(address, "http://")
	if !plain && strings.Contains(address, "://") {
		return address
	}
	return "https://" + rest
}

// token converts a token, whose value jorc's configuration cannot contain.
func (c *converter) token(b *output, value, file, standard string) {
	g := c.global
	if of, path := g.text(file); of != nil {
		b.attribute("token_file", quote(c.absolute(of, path)), of)
		if token := g.get(value); token != nil && value == "vault.token" { // the file takes precedence
			g.find(token, NotNeeded, "%s uses the token file instead", c.tool.name)
		}
		return
	}
	if of, _ := g.text(value); of != nil {
		b.attribute("token_file", quote(standard), nil)
		g.find(of, NoEquivalent, "%s: %s", inFile, standard)
	}
}

// auth converts HTTP basic authentication, whose values jorc's configuration cannot contain.
func (c *converter) auth(b *output) {
	const file = "/etc/jorc/consul.auth"
	g := c.global
	enabled, on := g.flag("consul.auth.enabled")
	written := false
	for _, path := range []string{"consul.auth.username", "consul.auth.password"} {
		of, value := g.text(path)
		switch {
		case of == nil:
		case enabled != nil && !on:
			g.find(of, NotNeeded, "the auth block is disabled")
		case value != "":
			if !written {
				b.attribute("auth_file", quote(file), nil)
				written = true
			}
			g.find(of, NoEquivalent, "%s: %s", basicAuth, file)
		}
	}
}

// vault converts the vault block.
func (c *converter) vault(out *output) {
	g := c.global
	enabled, on := g.flag("vault.enabled")
	if enabled != nil && !on {
		for _, of := range g.order {
			if strings.HasPrefix(of.path, "vault.") && !of.used {
				g.find(of, NotNeeded, "the vault block is disabled")
			}
		}
		return
	}
	var b output
	if of, address := g.text("vault.address"); of != nil {
		if strings.Contains(address, "@") {
			g.find(of, NoEquivalent, "the address contains a user or password")
		} else {
			b.attribute("address", quote(address), of)
		}
	}
	b.string("namespace", g, "vault.namespace")
	c.token(&b, "vault.token", "vault.vault_agent_token_file", "/etc/jorc/vault.token")
	b.path("ca_file", g, "vault.ssl.ca_cert")
	if of := g.get("vault.ssl.verify"); of != nil && of.value == true {
		g.find(of, NotNeeded, "jorc checks certificates")
	}
	out.block("vault", &b)
}

// signals accepts the signals that jorc understands itself.
func (c *converter) signals() {
	for path, same := range map[string][]string{"kill_signal": {"SIGINT", "SIGTERM"}, "reload_signal": {"SIGHUP"}} {
		of := c.global.get(path)
		if of == nil {
			continue
		}
		if name, ok := of.value.(string); ok && slices.Contains(same, strings.ToUpper(name)) {
			c.global.find(of, NotNeeded, "jorc understands this signal without a setting")
		}
	}
}

// templateOptions writes what the templates use besides data of Consul.
func (c *converter) templateOptions(out *output) {
	var b output
	if len(c.allowEnv) > 0 {
		b.attribute("allow_env", quoteList(slices.Sorted(maps.Keys(c.allowEnv))), nil)
	}
	if c.plugin {
		b.attribute("allow_functions", quoteList([]string{"plugin"}), nil)
	}
	out.block("template_options", &b)
}

// defaults reads what applies to templates that do not set it.
func (c *converter) defaults() {
	c.window = c.global.window("wait")
	for _, side := range []string{"left", "right"} {
		if of, value := c.global.text("default_delimiters." + side); of != nil {
			c.delims[side] = value
		}
	}
}

// noTemplates names the defaults that no template uses.
func (c *converter) noTemplates() {
	for _, path := range []string{"wait.min", "wait.max", "default_delimiters.left", "default_delimiters.right"} {
		if of := c.global.all[path]; of != nil {
			c.global.find(of, NotNeeded, "there is no template")
		}
	}
}

// absolute returns a path that does not depend on the working directory.
func (c *converter) absolute(of *setting, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	full := filepath.Join(c.Dir, path)
	c.find(of.at, of.path, Check, "the path was relative to %s's working directory; it is below %s now", c.tool.name, c.Dir)
	return full
}

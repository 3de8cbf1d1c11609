package config

import (
	"math"

	"github.com/hashicorp/hcl/v2"
)

// root reads all files, merged, into c.
func (d *decoder) root(body hcl.Body, c *Config) {
	have := d.body(body, fields{
		"cluster":      text(&c.Cluster),
		"node":         text(&c.Node),
		"prefix":       text(&c.Prefix),
		"state_dir":    file(&c.StateDir),
		"version_file": file(&c.VersionFile),
		"on_stop":      text(&c.OnStop),
		"log_level":    text(&c.LogLevel),
		"log_json":     boolean(&c.LogJSON),
	}, nested{
		"http":             d.single("http", fields{"addr": text(&c.HTTP.Addr)}),
		"consul":           d.single("consul", d.consulFields(&c.Consul)),
		"dns":              d.single("dns", fields{"addr": nonEmpty(&c.DNS.Addr)}),
		"vault":            d.single("vault", d.vaultFields(&c.Vault)),
		"template_options": d.single("template_options", templateOptions(&c.TemplateOpts)),

		"service":      {label: "name", read: func(b *hcl.Block) { c.Services = append(c.Services, d.service(b)) }},
		"requires":     d.requires(&c.Requires),
		"static":       {once: true, read: func(b *hcl.Block) { c.Static = d.static(b) }},
		"template":     {label: "name", read: func(b *hcl.Block) { c.Templates = append(c.Templates, d.template(b)) }},
		"workflow":     {label: "name", read: func(b *hcl.Block) { c.Workflows = append(c.Workflows, d.workflow(b)) }},
		"trigger":      {label: "name", read: func(b *hcl.Block) { c.Triggers = append(c.Triggers, d.trigger(b)) }},
		"member":       {once: true, read: func(b *hcl.Block) { c.Member = d.member(b) }},
		"orchestrator": {once: true, read: func(b *hcl.Block) { c.Orchestrator = d.orchestrator(b) }},
		"log_store":    {once: true, read: func(b *hcl.Block) { c.LogStore = d.logStore(b) }},
	})
	d.remember("", have)
}

// single is a block of settings that exists once.
func (d *decoder) single(name string, f fields) blockType {
	return blockType{once: true, read: func(b *hcl.Block) { d.remember(name+".", d.body(b.Body, f, nil)) }}
}

// remember notes which settings came from a file, and where from.
func (d *decoder) remember(prefix string, have present) {
	for name, rng := range have {
		d.settings[prefix+name] = source{rng: rng}
	}
}

func (d *decoder) consulFields(c *Consul) fields {
	return fields{
		"address":         nonEmpty(&c.Address),
		"token":           forbidden("token_file"),
		"token_file":      file(&c.TokenFile),
		"ca_file":         file(&c.CAFile),
		"ca_path":         file(&c.CAPath),
		"client_cert":     file(&c.ClientCert),
		"client_key":      file(&c.ClientKey),
		"tls_server_name": nonEmpty(&c.TLSServerName),
		"namespace":       nonEmpty(&c.Namespace),
		"partition":       nonEmpty(&c.Partition),
		"datacenter":      nonEmpty(&c.Datacenter),
		"max_connections": number(&c.MaxConnections, leastConnections, math.MaxInt32),
	}
}

func (d *decoder) vaultFields(v *Vault) fields {
	return fields{
		"address":    nonEmpty(&v.Address),
		"token":      forbidden("token_file"),
		"token_file": file(&v.TokenFile),
		"namespace":  nonEmpty(&v.Namespace),
		"ca_file":    file(&v.CAFile),
	}
}

func templateOptions(o *TemplateOptions) fields {
	return fields{
		"allow_functions": words(&o.AllowFunctions, "plugin", "writeToFile"),
		"allow_env":       texts(&o.AllowEnv),
		"render_timeout":  interval(&o.RenderTimeout),
		"max_output":      number(&o.MaxOutput, 1, math.MaxInt32),
	}
}

// forbidden refuses a secret in the configuration.
func forbidden(instead string) field {
	return func(d *decoder, a *hcl.Attribute) {
		d.errorf(a.NameRange, "Secret in the configuration", "A %s does not belong into a configuration file: name a file that holds it with %q, or set it in the environment.", a.Name, instead)
	}
}

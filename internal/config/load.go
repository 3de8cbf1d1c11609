package config

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// Options are what Load reads besides the files.
type Options struct {
	Getenv    func(string) string // os.Getenv in the program; nil reads no environment
	Overrides Overrides
}

// source tells where the value of a setting comes from: a place in a file, or
// the name of a flag or environment variable.
type source struct {
	rng  hcl.Range
	name string
}

// Load reads files and directories (their *.hcl and *.json, sorted, not what
// lies deeper) and merges them, then the environment, then the flags, and
// checks the result. Without paths it gives the defaults with environment and
// flags. Every error is an *Error that lists all that is wrong.
//
// A relative path in a file is meant from that file's directory.
func Load(paths []string, o Options) (*Config, error) {
	d := newDecoder()
	body := d.read(paths)
	if d.failed() {
		return nil, d.err()
	}
	c := base()
	d.root(body, &c)
	if o.Getenv != nil {
		d.environment(o.Getenv, &c)
	}
	d.overrides(o.Overrides, &c)
	c.derive()
	d.validate(&c)
	if d.failed() {
		return nil, d.err()
	}
	c.Warnings, _ = d.problems(hcl.DiagWarning)
	return &c, nil
}

func (d *decoder) failed() bool { return len(d.errs) > 0 || d.diags.HasErrors() }

// validate holds the parts of the configuration against each other.
func (d *decoder) validate(c *Config) {
	d.checkSettings(c)
	d.checkWorkflows(c)
	d.checkPaths()
}

// checkWorkflows warns about names that no workflow has: they fail when they
// are to run, all else on this host works.
func (d *decoder) checkWorkflows(c *Config) {
	known := make([]string, 0, len(c.Workflows))
	for _, w := range c.Workflows {
		known = append(known, w.Name)
	}
	for _, ref := range d.workflowRefs {
		if !slices.Contains(known, ref.value) {
			d.warnf(ref.rng, "Unknown workflow", "%s names the workflow %q, which is not defined.%s", ref.owner, ref.value, suggest(ref.value, known))
		}
	}
}

package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/jorc/jorc/internal/text"
)

// Defaults of a process.
const (
	defaultKillSignal  = "SIGTERM"
	defaultKillTimeout = 30 * time.Second
	defaultHealthyTime = 10 * time.Second
)

// Signals returns the names of the signals that a process can be sent.
func Signals() []string {
	return []string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGCONT", "SIGWINCH"}
}

func (d *decoder) process(b *hcl.Block) Process {
	p := Process{
		Name: b.Labels[0], Pos: position(b.TypeRange),
		KillSignal: defaultKillSignal, KillTimeout: defaultKillTimeout, MinHealthyTime: defaultHealthyTime,
	}
	d.claim("process", "", p.Name, b.LabelRanges[0], text.CheckSegment)
	args := d.decode(b.Body, b.LabelRanges[0], &p, custom{
		"command":          d.command(&p.Command),
		"kill_timeout":     d.interval(&p.KillTimeout),
		"splay":            d.duration(&p.Splay),
		"wait":             d.wait(&p.Wait),
		"min_healthy_time": d.interval(&p.MinHealthyTime),
	}, nested{"env": {once: true, read: func(b *hcl.Block) { d.processEnv(b, &p.Env) }}})
	args.required("Process "+strconv.Quote(p.Name), "command")
	args.notEmpty("user")
	args.path("dir", &p.Dir)
	args.oneOf("kill_signal", Signals()...)
	args.oneOf("reload_signal", Signals()...)
	args.names("templates", p.Templates, text.CheckSegment)
	if args.ok("templates") {
		if p.Templates == nil {
			p.Templates = []string{}
		}
		for _, name := range p.Templates {
			d.templateRefs = append(d.templateRefs, place{value: name, rng: args.at("templates"), owner: "Process " + strconv.Quote(p.Name)})
		}
	}
	p.MaxParallel = args.slot(p.Slot, p.MaxParallel)
	return p
}

func (d *decoder) processEnv(b *hcl.Block, e *ProcessEnv) {
	source := func(to *[]EnvSource) blockType {
		return blockType{label: "path", read: func(b *hcl.Block) { *to = append(*to, d.envSource(b)) }}
	}
	args := d.decode(b.Body, b.TypeRange, e, nil, nested{"prefix": source(&e.Prefixes), "secret": source(&e.Secrets)})
	for _, list := range []struct {
		name   string
		values []string
	}{{"allowlist", e.Allowlist}, {"denylist", e.Denylist}} {
		for _, pattern := range list.values {
			_, err := filepath.Match(pattern, "")
			args.valid(list.name, err)
		}
	}
	for _, variable := range e.Custom {
		args.valid("custom", checkVariable(variable))
	}
}

// checkVariable checks NAME=value without repeating the value.
func checkVariable(s string) error {
	name, _, ok := strings.Cut(s, "=")
	switch {
	case !ok || name == "":
		return errors.New("each element must be NAME=value")
	case strings.ContainsRune(s, 0):
		return fmt.Errorf("variable %s contains a zero byte", strings.ReplaceAll(name, "\x00", ""))
	}
	return nil
}

// envKey is what a format replaces by the key.
const (
	envKey        = "key"
	defaultFormat = "{{ key }}"
)

func (d *decoder) envSource(b *hcl.Block) EnvSource {
	s := EnvSource{Path: strings.TrimPrefix(b.Labels[0], "/"), Format: defaultFormat}
	if strings.TrimSpace(s.Path) == "" || strings.ContainsRune(s.Path, 0) {
		d.errorf(b.LabelRanges[0], "Invalid "+b.Type, "A %s block needs a path: %s \"app/config\".", b.Type, b.Type)
	}
	args := d.decode(b.Body, b.LabelRanges[0], &s, nil, nil)
	args.valid("format", checkFormat(s.Format))
	return s
}

func checkFormat(s string) error {
	before, rest, open := strings.Cut(s, "{{")
	key, after, closed := strings.Cut(rest, "}}")
	if !open || !closed || strings.TrimSpace(key) != envKey || strings.ContainsAny(before+after, "{}=\x00") {
		return errors.New("must contain {{ key }} once, and no other braces and no =")
	}
	return nil
}

// VariableName returns the name that a key gets, before upcase and sanitize.
func (s EnvSource) VariableName(key string) string {
	before, rest, open := strings.Cut(s.Format, "{{")
	if !open {
		return key
	}
	_, after, _ := strings.Cut(rest, "}}")
	return before + key + after
}

// slot checks the arguments slot and max_parallel and returns the limit: below zero
// if only a slot is named.
func (a *arguments) slot(slot string, limit int) int {
	a.valid("slot", text.CheckSegment(slot))
	a.between(0, maxHolders, "max_parallel")
	switch {
	case a.has("slot") && !a.has("max_parallel"):
		return -1
	case a.has("max_parallel") && !a.has("slot"):
		a.d.errorf(a.at("max_parallel"), "Missing argument", `"max_parallel" limits the holders of a slot: name one with "slot".`)
	}
	return limit
}

// checkProcesses checks that processes name templates that exist.
func (d *decoder) checkProcesses(c *Config) {
	var known []string
	for i := range c.Templates {
		known = append(known, c.Templates[i].Name)
	}
	for _, ref := range d.templateRefs {
		if !slices.Contains(known, ref.value) {
			d.errorf(ref.rng, "Unknown template", "%s names the template %q, which is not defined.%s", ref.owner, ref.value, didYouMean(ref.value, known))
		}
	}
}

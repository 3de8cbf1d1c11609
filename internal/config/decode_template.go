package config

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

func (d *decoder) template(b *hcl.Block) Template {
	t := Template{
		Name: b.Labels[0], Pos: position(b.TypeRange),
		CheckTimeout: defaultCommandTime, ReloadTimeout: defaultCommandTime,
		ShrinkAfter: defaultShrinkAfter, EmptyAfter: defaultEmptyAfter,
	}
	what := fmt.Sprintf("template %q", t.Name)
	d.claim("template", "", t.Name, b.LabelRanges[0], segment)
	have := d.body(b.Body, fields{
		"source":               file(&t.Source),
		"contents":             text(&t.Contents),
		"destination":          d.destination(&t.Destination, what),
		"perms":                parsed(&t.Perms, func(s string) error { _, err := parsePerms(s); return err }),
		"user":                 nonEmpty(&t.User),
		"group":                nonEmpty(&t.Group),
		"create_dirs":          boolean(&t.CreateDirs),
		"left_delim":           nonEmpty(&t.LeftDelim),
		"right_delim":          nonEmpty(&t.RightDelim),
		"error_on_missing_key": boolean(&t.ErrorOnMissingKey),
		"function_denylist":    texts(&t.FunctionDenylist),
		"sandbox_path":         file(&t.SandboxPath),
		"check":                command(&t.Check),
		"check_timeout":        interval(&t.CheckTimeout),
		"reload":               command(&t.Reload),
		"reload_timeout":       interval(&t.ReloadTimeout),
		"min_instances":        instances(&t.MinInstances),
		"max_shrink":           shrink(&t.MaxShrink),
		"shrink_after":         duration(&t.ShrinkAfter),
		"empty_after":          duration(&t.EmptyAfter),
		"allow_empty":          boolean(&t.AllowEmpty),
		"wait":                 wait(&t.Wait),
		"together":             parsed(&t.Together, segment),
		"slot":                 parsed(&t.Slot, segment),
		"max_parallel":         count(&t.MaxParallel),
	}, nested{"requires": d.requires(&t.Requires)})

	label := "Template " + strconv.Quote(t.Name)
	d.exactlyOne(have, b.LabelRanges[0], label, "source", "contents")
	d.required(have, b.LabelRanges[0], label, "destination")
	at, ok := have["max_parallel"]
	if !ok && t.Slot != "" {
		t.MaxParallel = -1
	}
	if ok && t.Slot == "" {
		if _, tried := have["slot"]; !tried {
			d.errorf(at, "Missing argument", `"max_parallel" limits the holders of a slot: name one with "slot".`)
		}
	}
	d.sources[what] = t.Source
	return t
}

// destination reads an absolute path that names a file, and notes it for the
// checks across templates.
func (d *decoder) destination(p *string, owner string) field {
	return func(d *decoder, a *hcl.Attribute) {
		s, ok := d.str(a.Expr, a.Name)
		if !ok || !d.pathFits(a.Expr.Range(), a.Name, s) {
			return
		}
		last := s[strings.LastIndexByte(s, '/')+1:]
		switch {
		case !filepath.IsAbs(s):
			d.errorf(a.Expr.Range(), "Invalid path", "%q must be an absolute path, not %q.", a.Name, s)
		case last == "" || last == "." || last == "..":
			d.errorf(a.Expr.Range(), "Invalid path", "%q must name a file, not the directory %q.", a.Name, s)
		default:
			*p = s
			d.destinations = append(d.destinations, place{value: s, rng: a.Expr.Range(), owner: owner})
		}
	}
}

// requires reads blocks `requires "TARGET"`.
func (d *decoder) requires(p *[]Requires) blockType {
	return blockType{label: "target", read: func(b *hcl.Block) {
		r := Requires{Target: b.Labels[0], Count: 1, For: defaultRequiresFor, Pos: position(b.TypeRange)}
		if strings.TrimSpace(r.Target) == "" {
			d.errorf(b.LabelRanges[0], "Invalid requires", `A requires block names what it waits for: requires "mysql".`)
		}
		d.body(b.Body, fields{
			"count": number(&r.Count, 1, math.MaxInt32),
			"for":   oneOf(&r.For, "functional", "addressable", "reachable"),
		}, nil)
		*p = append(*p, r)
	}}
}

func wait(p *Wait) field {
	return func(d *decoder, a *hcl.Attribute) {
		s, ok := d.str(a.Expr, a.Name)
		if !ok {
			return
		}
		w, err := parseWait(s)
		if err != nil {
			d.errorf(a.Expr.Range(), "Invalid wait", `%v. Write "min" or "min:max", such as "50ms:2s".`, err)
			return
		}
		*p = w
	}
}

// shrink reads "50%" or a count, which may be a number too.
func shrink(p *string) field {
	return func(d *decoder, a *hcl.Attribute) {
		if kindOf(a.Expr) == kindNumber {
			if n, ok := d.whole(a.Expr, a.Name, 0, math.MaxInt32); ok {
				*p = strconv.Itoa(n)
			}
			return
		}
		parsed(p, parseShrink)(d, a)
	}
}

// instances reads service → least number of instances.
func instances(p *map[string]int) field {
	return func(d *decoder, a *hcl.Attribute) {
		all := map[string]int{}
		d.members(a.Expr, a.Name, func(service string, v hcl.Expression) {
			if service == "" {
				d.errorf(v.Range(), "Invalid value", "%q names no service.", a.Name)
				return
			}
			if n, ok := d.whole(v, service, 0, math.MaxInt32); ok {
				all[service] = n
			}
		})
		*p = all
	}
}

package config

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/jorc/jorc/internal/text"
)

func (d *decoder) template(b *hcl.Block) Template {
	t := Template{
		Name: b.Labels[0], Pos: position(b.TypeRange),
		CheckTimeout: defaultCommandTime, ReloadTimeout: defaultCommandTime,
		ShrinkAfter: defaultShrinkAfter, EmptyAfter: defaultEmptyAfter, OnEdit: OnEditRestore,
	}
	d.claim("template", "", t.Name, b.LabelRanges[0], text.CheckSegment)
	args := d.decode(b.Body, b.LabelRanges[0], &t, custom{
		"check":          d.command(&t.Check),
		"check_timeout":  d.interval(&t.CheckTimeout),
		"reload":         d.command(&t.Reload),
		"reload_timeout": d.interval(&t.ReloadTimeout),
		"max_shrink":     d.shrink(&t.MaxShrink),
		"shrink_after":   d.duration(&t.ShrinkAfter),
		"empty_after":    d.duration(&t.EmptyAfter),
		"wait":           d.wait(&t.Wait),
	}, nested{"requires": d.requires(&t.Requires)})
	args.notEmpty("user", "group", "left_delim", "right_delim")
	args.valid("perms", checkPerms(t.Perms))
	args.valid("together", text.CheckSegment(t.Together))
	args.valid("slot", text.CheckSegment(t.Slot))
	args.between(0, math.MaxInt32, "max_parallel", "min_instances")
	if _, empty := t.MinInstances[""]; empty {
		d.errorf(args.at("min_instances"), "Invalid value", "%q names no service.", "min_instances")
	}
	args.oneOf("on_edit", OnEditRestore, OnEditReport)
	label := "Template " + strconv.Quote(t.Name)
	owner := fmt.Sprintf("template %q", t.Name)
	args.exactlyOne(label, "source", "contents")
	args.required(label, "destination")
	args.ownPath("source", &t.Source, owner)
	args.path("sandbox_path", &t.SandboxPath)
	d.destination(args, &t, owner)
	switch {
	case t.Slot != "" && !args.has("max_parallel"):
		t.MaxParallel = -1
	case args.has("max_parallel") && !args.has("slot"):
		d.errorf(args.at("max_parallel"), "Missing argument", `"max_parallel" limits the holders of a slot: name one with "slot".`)
	}
	return t
}

// destination checks that a destination is the absolute path of a file, and
// keeps it for the checks across templates.
func (d *decoder) destination(args *arguments, t *Template, owner string) {
	rng := args.at("destination")
	if !args.ok("destination") || !d.validPath(rng, "destination", t.Destination) {
		return
	}
	last := t.Destination[strings.LastIndexByte(t.Destination, '/')+1:]
	switch {
	case !filepath.IsAbs(t.Destination):
		d.errorf(rng, "Invalid path", "%q must be an absolute path, not %q.", "destination", t.Destination)
	case last == "" || last == "." || last == "..":
		d.errorf(rng, "Invalid path", "%q must name a file, not the directory %q.", "destination", t.Destination)
	default:
		d.destinations = append(d.destinations, place{value: t.Destination, rng: rng, owner: owner})
	}
}

// requires decodes blocks `requires "TARGET"`.
func (d *decoder) requires(p *[]Requires) blockType {
	return blockType{label: "target", read: func(b *hcl.Block) {
		r := Requires{Target: b.Labels[0], Count: 1, For: defaultRequiresFor, Pos: position(b.TypeRange)}
		if strings.TrimSpace(r.Target) == "" {
			d.errorf(b.LabelRanges[0], "Invalid requires", `A requires block needs a target: requires "mysql".`)
		}
		args := d.decode(b.Body, b.LabelRanges[0], &r, nil, nil)
		args.between(1, math.MaxInt32, "count")
		args.oneOf("for", "functional", "addressable", "reachable")
		*p = append(*p, r)
	}}
}

// shrink decodes "50%" or a count, which may be a number too.
func (d *decoder) shrink(p *string) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		if kindOf(a.Expr) == kindNumber {
			if n, ok := d.whole(a.Expr, a.Name); ok {
				d.limits(a.Expr, a.Name, 0, math.MaxInt32)
				*p = strconv.Itoa(n)
			}
			return
		}
		s, ok := d.str(a.Expr, a.Name)
		if !ok {
			return
		}
		if err := checkShrink(s); err != nil {
			d.errorf(a.Expr.Range(), "Invalid value", "%q: %v.", a.Name, err)
		}
		*p = s
	}
}

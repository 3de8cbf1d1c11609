package config

import (
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// text reads a string.
func text(p *string) field {
	return func(d *decoder, a *hcl.Attribute) {
		if s, ok := d.str(a.Expr, a.Name); ok {
			*p = s
		}
	}
}

// nonEmpty reads a string that says something.
func nonEmpty(p *string) field {
	return func(d *decoder, a *hcl.Attribute) {
		s, ok := d.str(a.Expr, a.Name)
		if ok && s == "" {
			d.errorf(a.Expr.Range(), "Empty value", "%q must not be empty.", a.Name)
			return
		}
		*p = s
	}
}

// parsed reads a string that parse accepts.
func parsed(p *string, parse func(string) error) field {
	return func(d *decoder, a *hcl.Attribute) {
		s, ok := d.str(a.Expr, a.Name)
		if !ok {
			return
		}
		if err := parse(s); err != nil {
			d.errorf(a.Expr.Range(), "Invalid value", "%q: %v.", a.Name, err)
			return
		}
		*p = s
	}
}

// oneOf reads one of a few words.
func oneOf(p *string, words ...string) field {
	return func(d *decoder, a *hcl.Attribute) {
		s, ok := d.str(a.Expr, a.Name)
		if !ok {
			return
		}
		if !slices.Contains(words, s) {
			d.errorf(a.Expr.Range(), "Invalid value", "%q must be %s, not %q.%s", a.Name, list(words, "or"), s, suggest(s, words))
			return
		}
		*p = s
	}
}

func boolean(p *bool) field {
	return func(d *decoder, a *hcl.Attribute) {
		if v, ok := d.expect(a.Expr, a.Name, kindBool); ok {
			*p = v.True()
		}
	}
}

// number reads a whole number from least to most.
func number(p *int, least, most int64) field {
	return func(d *decoder, a *hcl.Attribute) {
		if n, ok := d.whole(a.Expr, a.Name, least, most); ok {
			*p = n
		}
	}
}

// count reads a number that is not negative.
func count(p *int) field { return number(p, 0, math.MaxInt32) }

// duration reads "30s"; zero is possible.
func duration(p *time.Duration) field { return span(p, false) }

// interval reads a duration above zero.
func interval(p *time.Duration) field { return span(p, true) }

func span(p *time.Duration, positive bool) field {
	return func(d *decoder, a *hcl.Attribute) {
		if kindOf(a.Expr) == kindNumber {
			v, _ := constant(a.Expr)
			d.errorf(a.Expr.Range(), "Invalid duration", "%q needs a unit: write it as a string such as %q.", a.Name, shortNumber(v)+"s")
			return
		}
		s, ok := d.str(a.Expr, a.Name)
		if !ok {
			return
		}
		v, err := parseDuration(s)
		switch {
		case err != nil:
			d.errorf(a.Expr.Range(), "Invalid duration", "%q: %v.", a.Name, err)
		case v == 0 && positive:
			d.errorf(a.Expr.Range(), "Invalid duration", "%q must be more than zero.", a.Name)
		default:
			*p = v
		}
	}
}

// shortNumber is a number as it was probably written, for an example.
func shortNumber(v cty.Value) string {
	if n, _ := v.AsBigFloat().Int64(); n > 0 && n < math.MaxInt32 {
		return strconv.FormatInt(n, 10)
	}
	return "30"
}

// texts reads a list of strings.
func texts(p *[]string) field {
	return func(d *decoder, a *hcl.Attribute) {
		items, ok := d.elements(a.Expr, a.Name)
		if !ok {
			return
		}
		all := make([]string, 0, len(items))
		for i, item := range items {
			if s, ok := d.str(item, nth(a.Name, i)); ok {
				all = append(all, s)
			}
		}
		*p = all
	}
}

// nth is what an item of a list is called.
func nth(name string, i int) string { return name + "[" + strconv.Itoa(i) + "]" }

// names reads a list of names, each there once.
func names(p *[]string, valid func(string) error) field {
	return func(d *decoder, a *hcl.Attribute) {
		texts(p)(d, a)
		for i, name := range *p {
			if err := valid(name); err != nil {
				d.errorf(a.Expr.Range(), "Invalid value", "%q: %v.", a.Name, err)
			} else if slices.Contains((*p)[:i], name) {
				d.errorf(a.Expr.Range(), "Invalid value", "%q has %q twice.", a.Name, name)
			}
		}
	}
}

// words reads a list of known words.
func words(p *[]string, known ...string) field {
	return func(d *decoder, a *hcl.Attribute) {
		texts(p)(d, a)
		for _, w := range *p {
			if !slices.Contains(known, w) {
				d.errorf(a.Expr.Range(), "Invalid value", "%q can have %s, not %q.%s", a.Name, list(known, "and"), w, suggest(w, known))
			}
		}
	}
}

// textMap reads an object of strings.
func textMap(p *map[string]string) field {
	return func(d *decoder, a *hcl.Attribute) {
		all := map[string]string{}
		d.members(a.Expr, a.Name, func(key string, v hcl.Expression) {
			if s, ok := d.str(v, key); ok {
				all[key] = s
			}
		})
		*p = all
	}
}

// anyMap reads an object of anything.
func anyMap(p *map[string]any) field {
	return func(d *decoder, a *hcl.Attribute) {
		all := map[string]any{}
		d.members(a.Expr, a.Name, func(key string, v hcl.Expression) { all[key] = d.anything(v, key) })
		*p = all
	}
}

// file reads a path; a relative one is meant from the directory of the
// configuration file it stands in.
func file(p *string) field {
	return func(d *decoder, a *hcl.Attribute) {
		s, ok := d.str(a.Expr, a.Name)
		if !ok || !d.pathFits(a.Expr.Range(), a.Name, s) {
			return
		}
		if !filepath.IsAbs(s) {
			dir, err := filepath.Abs(filepath.Dir(a.Expr.Range().Filename))
			if err != nil {
				d.errorf(a.Expr.Range(), "Invalid path", "%q: %v.", a.Name, err)
				return
			}
			s = dir + "/" + s // not joined: ".." may stand behind a symlink
		}
		*p = s
	}
}

// pathFits reports paths that no file can have.
func (d *decoder) pathFits(rng hcl.Range, name, s string) bool {
	switch {
	case s == "":
		d.errorf(rng, "Invalid path", "%q must not be empty.", name)
	case len(s) > maxPath:
		d.errorf(rng, "Invalid path", "%q has %d bytes, at most %d are possible.", name, len(s), maxPath)
	case strings.ContainsRune(s, 0):
		d.errorf(rng, "Invalid path", "%q contains a zero byte.", name)
	default:
		return true
	}
	return false
}

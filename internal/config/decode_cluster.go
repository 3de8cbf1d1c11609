package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/hashicorp/hcl/v2"
)

func (d *decoder) static(b *hcl.Block) *Static {
	s := &Static{ValidationInterval: defaultValidation}
	have := d.body(b.Body, fields{
		"workflow":            d.workflowName(&s.Workflow, "The static block"),
		"validation":          d.workflowName(&s.Validation, "The static block"),
		"validation_interval": interval(&s.ValidationInterval),
		"paths":               d.staticGlobs(&s.Paths),
	}, nil)
	d.required(have, b.TypeRange, "A static block", "workflow")
	return s
}

// maxAlternatives bounds what the braces of one pattern stand for.
const maxAlternatives = 1000

func (d *decoder) staticGlobs(p *[]string) field {
	return func(d *decoder, a *hcl.Attribute) {
		items, ok := d.elements(a.Expr, a.Name)
		if !ok {
			return
		}
		for i, item := range items {
			s, ok := d.str(item, nth(a.Name, i))
			if !ok || !d.pathFits(item.Range(), nth(a.Name, i), s) {
				continue
			}
			if err := globOK(s); err != nil {
				d.errorf(item.Range(), "Invalid path", "%v.", err)
				continue
			}
			*p = append(*p, s)
			d.staticPaths = append(d.staticPaths, place{value: s, rng: item.Range()})
		}
	}
}

func globOK(s string) error {
	switch {
	case !filepath.IsAbs(s):
		return fmt.Errorf("a static path must be absolute, %q is not", s)
	case !doublestar.ValidatePattern(s):
		return fmt.Errorf("%q is no valid pattern", s)
	}
	_, rest := doublestar.SplitPattern(s)
	if isGlob(s) && strings.Contains("/"+rest+"/", "/../") {
		return fmt.Errorf(`".." cannot stand behind a wildcard in %q`, s)
	}
	n := 1
	for group := range strings.SplitSeq(s, "{") {
		if n *= strings.Count(group, ",") + 1; n > maxAlternatives {
			return fmt.Errorf("the braces of %q stand for more than %d paths", s, maxAlternatives)
		}
	}
	return nil
}

func (d *decoder) member(b *hcl.Block) *Member {
	m := &Member{}
	d.body(b.Body, fields{
		"roles":         names(&m.Roles, segment),
		"zone":          parsed(&m.Zone, segment),
		"params":        anyMap(&m.Params),
		"meta":          anyMap(&m.Meta),
		"leave_on_stop": boolean(&m.LeaveOnStop),
		"provides":      names(&m.Provides, serviceName),
		"on_lead":       d.workflowName(&m.OnLead, "The member block"),
		"on_step_down":  d.workflowName(&m.OnStepDown, "The member block"),
	}, nil)
	return m
}

func (d *decoder) logStore(b *hcl.Block) *LogStore {
	l := &LogStore{}
	have := d.body(b.Body, fields{"dir": file(&l.Dir)}, nested{"s3": {once: true, read: func(b *hcl.Block) {
		l.S3 = &S3{}
		have := d.body(b.Body, fields{
			"endpoint":         nonEmpty(&l.S3.Endpoint),
			"bucket":           parsed(&l.S3.Bucket, segment),
			"region":           nonEmpty(&l.S3.Region),
			"prefix":           text(&l.S3.Prefix),
			"credentials_file": file(&l.S3.CredentialsFile),
			"insecure":         boolean(&l.S3.Insecure),
		}, nil)
		d.required(have, b.TypeRange, "An s3 block", "endpoint", "bucket")
	}}})
	if l.S3 != nil {
		have["s3"] = b.TypeRange
	}
	d.exactlyOne(have, b.TypeRange, "A log_store block", "dir", "s3")
	return l
}

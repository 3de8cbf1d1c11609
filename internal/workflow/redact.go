package workflow

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/profile"
)

// A job's record leaves the host: into runs, reports, events and metrics. It holds
// no value that jorc gave to a task. The log of a task stays on the host, whole but
// for tokens.

// leastSecret is how long a value has to be, in bytes: shorter ones are words such
// as "true" or "web".
const leastSecret = 8

// redacted replaces a value in a record.
const redacted = "[redacted]"

// secretLines are the lines of texts that are kept out of records: a line of
// output may hold one line of a key or a certificate. Texts in public are not.
func secretLines(texts []string, public ...string) []string {
	all := map[string]bool{}
	for _, text := range texts {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); len(line) >= leastSecret && !slices.Contains(public, line) {
				all[line] = true
			}
		}
	}
	lines := slices.Sorted(maps.Keys(all))
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // the longest match wins
	return lines
}

// textsOf are the texts in params.
func textsOf(params profile.Params) []string {
	var all []string
	for _, v := range params {
		all = append(all, textsIn(v.JSON())...)
	}
	return all
}

// textsIn are the texts in a JSON document, names of members left out.
func textsIn(doc []byte) []string {
	var v any
	if json.Unmarshal(doc, &v) != nil {
		return nil
	}
	var all []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			all = append(all, v)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(v)
	return all
}

// changedTexts are the values in the file that a trigger gives to a job.
func changedTexts(change []byte) []string {
	var c Change
	if json.Unmarshal(change, &c) != nil || c.Kind != "key" && c.Kind != "prefix" {
		return nil
	}
	var all []string
	for _, item := range c.Changes {
		all = append(all, textsIn(item.Value)...)
	}
	return all
}

// redactor removes values from texts.
type redactor struct {
	values   []string // the longest first
	replacer *strings.Replacer
}

func (j *job) redactor(i int) *redactor {
	r := &redactor{values: append(slices.Clone(j.spec.Values), j.secrets(i)...)}
	slices.SortStableFunc(r.values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var pairs []string
	for _, v := range r.values {
		if v != "" {
			pairs = append(pairs, v, redacted)
		}
	}
	r.replacer = strings.NewReplacer(pairs...)
	return r
}

func (r *redactor) text(s string) string { return r.replacer.Replace(s) }

// tail redacts the end of an output, of which the beginning may be missing: then
// its first bytes may be the end of a value.
func (r *redactor) tail(s string, truncated bool) string {
	cut := 0
	for _, v := range r.values {
		for n := min(len(v)-1, len(s)); truncated && n > cut; n-- {
			if strings.HasPrefix(s, v[len(v)-n:]) {
				cut = n
			}
		}
	}
	return r.text(s[cut:])
}

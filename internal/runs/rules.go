package runs

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/profile"
)

// ParamRules is the param of the profile with the rules of a cluster.
const ParamRules = "cluster/rules"

// Rule says that each member that Filter matches runs Workflow once for each
// revision of the rule, members that join later included.
type Rule struct {
	Name     string         `json:"name,omitempty"` // default: that of the workflow
	Filter   string         `json:"filter,omitempty"`
	Workflow string         `json:"workflow"`
	After    string         `json:"after,omitempty"` // rule or workflow that must be done on the member first
	Params   profile.Params `json:"params,omitempty"`
}

// BadRule is a rule that cannot be followed.
type BadRule struct {
	Name string // as far as it is known
	Err  error
}

// ParseRules reads the param. The good rules are followed whatever the others
// are.
func ParseRules(v profile.Value) (good []Rule, bad []BadRule) {
	if v.IsNull() {
		return nil, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(v.JSON(), &list); err != nil {
		return nil, []BadRule{{Err: fmt.Errorf("param %s: %w: it is no list of rules", ParamRules, ErrInvalid)}}
	}
	seen := map[string]bool{}
	for i, text := range list {
		r, err := parseRule(text)
		if err == nil && seen[r.Name] {
			err = fmt.Errorf("%w: another rule has its name", ErrInvalid)
		}
		if err != nil {
			bad = append(bad, BadRule{Name: r.Name, Err: fmt.Errorf("param %s: rule %d %q: %w", ParamRules, i+1, r.Name, err)})
			continue
		}
		seen[r.Name] = true
		good = append(good, r)
	}
	return reachable(good, bad)
}

// CheckRules returns what is wrong with the first bad rule of the param: it is
// the param's profile.Validator.
func CheckRules(v profile.Value) error {
	if _, bad := ParseRules(v); len(bad) > 0 {
		return errors.New(strings.TrimPrefix(bad[0].Err.Error(), "param "+ParamRules+": "))
	}
	return nil
}

func parseRule(text []byte) (Rule, error) {
	var r Rule
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&r)
	if r.Name == "" {
		r.Name = r.Workflow
	}
	switch {
	case err != nil:
		return r, fmt.Errorf("%w: %w", ErrInvalid, err)
	case r.Workflow == "":
		return r, fmt.Errorf("%w: which workflow?", ErrInvalid)
	}
	_, err = cluster.ParseFilter(r.Filter)
	return r, err
}

// reachable leaves out rules that can never begin: what they come after is not
// there, or comes after them.
func reachable(rules []Rule, bad []BadRule) ([]Rule, []BadRule) {
	possible := make([]bool, len(rules))
	for more := true; more; {
		more = false
		for i, r := range rules {
			if !possible[i] && (r.After == "" || slices.ContainsFunc(before(i, rules), func(o int) bool { return possible[o] })) {
				possible[i], more = true, true
			}
		}
	}
	var good []Rule
	for i, r := range rules {
		if possible[i] {
			good = append(good, r)
			continue
		}
		why := fmt.Sprintf("there is no rule or workflow %q for it to come after", r.After)
		if len(before(i, rules)) > 0 || r.answers(r.After) {
			why = fmt.Sprintf("it can never begin: what it comes after, %q, comes after itself or never begins", r.After)
		}
		bad = append(bad, BadRule{Name: r.Name, Err: fmt.Errorf("param %s: rule %q: %w: %s", ParamRules, r.Name, ErrInvalid, why)})
	}
	return good, bad
}

// before are the rules of which one has to be done before rule i begins.
func before(i int, rules []Rule) []int {
	var all []int
	for o, r := range rules {
		if o != i && r.answers(rules[i].After) {
			all = append(all, o)
		}
	}
	return all
}

// answers reports whether an after of that text is about r.
func (r Rule) answers(to string) bool { return r.Name == to || r.Workflow == to }

// id is that of the run of this revision of the rule.
func (r Rule) id() string {
	content, _ := json.Marshal(struct { // cannot fail: text and params
		Filter, Workflow, After string
		Params                  profile.Params
	}{r.Filter, r.Workflow, r.After, r.Params})
	clean := func(c rune) rune {
		if (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' {
			return c
		}
		return '-'
	}
	name := strings.Map(clean, r.Name)
	sum := sha256.Sum256(append([]byte(r.Name+"\x00"), content...))
	return fmt.Sprintf("rule-%s-%x", name[:min(len(name), 60)], sum[:5])
}

// request is what the rule asks of members.
func (r Rule) request() Request {
	return Request{Workflow: r.Workflow, Params: r.Params, Filter: r.Filter}
}

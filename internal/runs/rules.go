package runs

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
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

// reachable leaves out rules that come after what is not there, or after
// themselves.
func reachable(rules []Rule, bad []BadRule) ([]Rule, []BadRule) {
	for {
		var good []Rule
		for _, r := range rules {
			switch why := stuck(r, rules); {
			case why != "":
				bad = append(bad, BadRule{Name: r.Name, Err: fmt.Errorf("param %s: rule %q: %w: %s", ParamRules, r.Name, ErrInvalid, why)})
			default:
				good = append(good, r)
			}
		}
		if len(good) == len(rules) {
			return good, bad
		}
		rules = good
	}
}

// stuck says why nothing can ever come before r.
func stuck(r Rule, rules []Rule) string {
	if r.After == "" {
		return ""
	}
	reached, next := map[string]bool{}, []string{r.After}
	found := false
	for len(next) > 0 {
		after := next[0]
		next = next[1:]
		if reached[after] {
			continue
		}
		reached[after] = true
		for _, o := range rules {
			if o.Name != after && o.Workflow != after || o.Name == r.Name && after != r.Name {
				continue
			}
			if o.Name == r.Name {
				return fmt.Sprintf("it comes after itself, by %q", r.After)
			}
			found = true
			if o.After != "" {
				next = append(next, o.After)
			}
		}
	}
	if !found {
		return fmt.Sprintf("there is no rule or workflow %q for it to come after", r.After)
	}
	return ""
}

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

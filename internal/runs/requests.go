package runs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
	"github.com/jorc/jorc/internal/workflow"
)

// Check returns ErrInvalid, or a *cluster.FilterError, for a request that
// cannot be carried out.
func (q Request) Check() error {
	if q.Workflow == "" {
		return fmt.Errorf("run: %w: the name of the workflow is missing", ErrInvalid)
	}
	if q.OnManager && (q.Filter != "" || q.Role != "" || len(q.Nodes) > 0 || !q.Limits.equal(Limits{})) {
		return fmt.Errorf("run: %w: on a manager it is run once: no filter, role, node or limit applies", ErrInvalid)
	}
	if q.MinHealthy > 0 && !q.Disturbs && q.MaxParallel == (pace.Amount{}) && !q.steps() {
		return fmt.Errorf("run: %w: min healthy without steps: all members begin at once; limit them with max parallel, a canary, batches, an order, or zone by zone", ErrInvalid)
	}
	if i := slices.IndexFunc(q.Order, func(r pace.Role) bool { return r.Kept }); i >= 0 {
		return fmt.Errorf("run: %w: order: %v leaves the role out: do that with a filter", ErrInvalid, q.Order[i])
	}
	if q.OnManager && q.Exceptions != (pace.Exceptions{}) {
		return fmt.Errorf("run: %w: a run on a manager disturbs no member, so no freeze and no budget holds it", ErrInvalid)
	}
	if q.OnManager && q.Disturbs {
		return fmt.Errorf("run: %w: a run on a manager disturbs no member", ErrInvalid)
	}
	if err := q.policy().Validate(); err != nil {
		return fmt.Errorf("run: %w: %w", ErrInvalid, err)
	}
	if err := workflow.CheckRunParams(q.Params); err != nil {
		return fmt.Errorf("run: %w: %w", ErrInvalid, err)
	}
	_, err := cluster.ParseFilter(q.Filter)
	return err
}

// awaitsOrchestrator is why a run waits that no orchestrator has seen.
const awaitsOrchestrator = "waits for the orchestrator"

// Ask asks for a run. If the same run exists under this ID, it is returned
// unchanged, and created is false. by is the user.
// It returns ErrInvalid, ErrTaken (nothing was written), or what kv.Txn.Commit
// returns.
func (r *Runs) Ask(ctx context.Context, id string, q Request, by string) (run Run, created bool, err error) {
	return r.ask(ctx, Run{ID: id, Request: q, By: by})
}

// AskGate is Ask for the gate of a rollout or stage. The run is cancelled as soon as the
// rollout no longer waits for it, see Observed.
func (r *Runs) AskGate(ctx context.Context, id string, q Request, by string) error {
	_, _, err := r.ask(ctx, Run{ID: id, Request: q, By: by, Gate: true})
	return err
}

func (r *Runs) ask(ctx context.Context, run Run) (_ Run, created bool, err error) {
	id, q, by := run.ID, run.Request, run.By
	if err := CheckID(id); err != nil {
		return Run{}, false, err
	}
	if err := q.Check(); err != nil {
		return Run{}, false, err
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	run.Created, run.State, run.Why = now, Pending, awaitsOrchestrator
	if q.NeedsApproval {
		run.State, run.Why = NeedsApproval, fmt.Sprintf("'jorc cluster approve %s' lets it begin", id)
	}
	run.History = noted(nil, Change{At: now, State: run.State, By: by})
	spec := r.spec(id)
	t := r.store.Txn()
	spec.SwapIn(t, kv.Entry[Run]{}, run)
	r.touch(t, id, now)
	_, err = t.Commit(ctx)
	if err == nil || !errors.Is(err, kv.ErrConflict) && !errors.Is(err, consul.ErrOutcomeUnknown) {
		return run, err == nil, err
	}
	e, readErr := spec.Get(ctx)
	switch {
	case readErr != nil || !e.Exists:
		return Run{}, false, err
	case !e.Value.Request.Same(q):
		return Run{}, false, fmt.Errorf("run %q: %w: nothing was written; see 'jorc cluster runs %s'", id, ErrTaken, id)
	}
	return e.Value, e.Value.Created.Equal(now) && e.Value.By == by, nil
}

// touch wakes the orchestrator for a run.
func (r *Runs) touch(t *kv.Txn, id string, now time.Time) {
	r.active.At(id).SetIn(t, now.Format(time.RFC3339Nano))
}

// Approve lets a run start that needs approval. If it was approved before, changed
// is false. It returns the run as it is now; ErrNoRun, or ErrState for a run that
// was cancelled.
func (r *Runs) Approve(ctx context.Context, id, by string) (run Run, changed bool, err error) {
	return r.change(ctx, id, func(run Run, now time.Time) (Run, bool, error) {
		switch {
		case run.State == Cancelled:
			return run, false, fmt.Errorf("run %q: %w: it was cancelled; ask for another", id, ErrState)
		case run.State != NeedsApproval:
			return run, false, nil
		}
		run.State, run.Why = Pending, awaitsOrchestrator
		run.History = noted(run.History, Change{At: now, State: Pending, By: by, Text: "approved"})
		return run, true, nil
	})
}

// Cancel ends a run: members that have not started do not, the others end after
// the task that is running, or with kill at once. It is not an error if the run
// has ended, or was cancelled already; changed is false then. It returns the run as it is now;
// ErrNoRun, and ErrState for a run of a rule, which would come back.
func (r *Runs) Cancel(ctx context.Context, id, by string, kill bool) (run Run, changed bool, err error) {
	return r.change(ctx, id, func(run Run, now time.Time) (Run, bool, error) {
		switch {
		case run.Rule != nil && !run.Rule.Gone:
			return run, false, fmt.Errorf("run %q: %w: rule %q asks for it: change the param %s", id, ErrState, run.Rule.Name, ParamRules)
		case run.State.Ended() || run.Cancel != "" && (run.Kill || !kill):
			return run, false, nil
		}
		run.Cancel, run.Kill = cmp.Or(by, "unknown user"), kill
		if run.State != Running {
			run.State, run.Why, run.Ended = Cancelled, "by "+run.Cancel, now
		}
		run.History = noted(run.History, Change{At: now, State: run.State, By: by, Text: "cancelled"})
		return run, true, nil
	})
}

// change changes a run's document and wakes the orchestrator.
func (r *Runs) change(ctx context.Context, id string, change func(Run, time.Time) (Run, bool, error)) (run Run, changed bool, err error) {
	if err := CheckID(id); err != nil {
		return Run{}, false, err
	}
	e, err := r.spec(id).Change(ctx, func(old kv.Entry[Run], t *kv.Txn) (Run, bool, error) {
		if !old.Exists {
			return Run{}, false, r.unknown(ctx, id)
		}
		now := time.Now().UTC().Truncate(time.Millisecond)
		next, write, err := change(old.Value, now)
		if changed = err == nil && write; changed {
			r.touch(t, id, now)
		}
		return next, write, err
	})
	return e.Value, changed && err == nil, err
}

func noRun(id string) error {
	return fmt.Errorf("run %q: %w: 'jorc cluster runs' lists them", id, ErrNoRun)
}

// unknown is ErrNoRun with the runs that exist, as far as they can be read.
func (r *Runs) unknown(ctx context.Context, id string) error {
	active, err := r.active.Names(ctx)
	ended, endedErr := r.ended.Names(ctx)
	if err != nil || endedErr != nil {
		return noRun(id)
	}
	return fmt.Errorf("run %q: %w%s", id, ErrNoRun, text.Unknown(id, "runs", append(active, ended...)))
}

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
	Disturbs bool           `json:"disturbs,omitempty"` // as in Request
	Windows  []pace.Window  `json:"windows,omitempty"`  // as in Request

	// Schedule makes a run at each due time instead; the rest is of such a rule only.
	Schedule  string `json:"schedule,omitempty"` // as schedule.Parse reads it
	Zone      string `json:"zone,omitempty"`     // default: UTC
	Missed    string `json:"missed,omitempty"`   // schedule.Skip, the default, or schedule.RunOnce
	OnManager bool   `json:"on_manager,omitempty"`
	Limits
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
	if r.OnManager && r.Disturbs {
		return r, fmt.Errorf("%w: a rule on a manager disturbs no member", ErrInvalid)
	}
	if _, err = cluster.ParseFilter(r.Filter); err == nil {
		err = r.checkSchedule()
	}
	if err != nil {
		return r, err
	}
	if err := workflow.CheckRunParams(r.Params); err != nil {
		return r, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return r, nil
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
		if o != i && r.Schedule == "" && r.answers(rules[i].After) {
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
	sum := sha256.Sum256(append([]byte(r.Name+"\x00"), content...))
	return fmt.Sprintf("rule-%s-%x", r.cleanName(60), sum[:5])
}

// key names the rule in keys and ids.
func (r Rule) key() string {
	sum := sha256.Sum256([]byte(r.Name))
	return fmt.Sprintf("%s-%x", r.cleanName(50), sum[:4])
}

// cleanName is the rule's name as far as ids can hold it.
func (r Rule) cleanName(most int) string {
	clean := func(c rune) rune {
		if (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' {
			return c
		}
		return '-'
	}
	name := strings.Map(clean, r.Name)
	return name[:min(len(name), most)]
}

// request is what the rule asks of members.
func (r Rule) request() Request {
	return Request{Workflow: r.Workflow, Params: r.Params, Filter: r.Filter, OnManager: r.OnManager, Disturbs: r.Disturbs, Windows: r.Windows, Limits: r.Limits}
}

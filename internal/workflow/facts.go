package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
)

// askTime bounds one question that templates put to others.
const askTime = 15 * time.Second

// originRun begins the origin of a job that belongs to a run.
const originRun = "run "

// paramProfile is the param that holds the name of the member's own cluster.
const paramProfile = "cluster/profile"

// facts is what templates of tasks see. What the member's cluster knows is
// asked for when a template first needs it, once.
type facts struct {
	ctx  context.Context // of the job's creation
	o    *Options
	job  Job
	task *config.Task   // whose templates are rendered
	own  profile.Object // params of the job

	asked   bool
	member  profile.Object // effective params of the member
	trouble error          // why they are not known

	used     map[string]any // params of the member that templates have read
	tokens   map[tokenKey]token
	reads    int      // of params and tokens, by templates
	ownReads int      // of params of the job itself, by templates
	env      []string // values of variables that params and tokens are part of
}

func newFacts(ctx context.Context, o *Options, j Job) *facts {
	return &facts{ctx: ctx, o: o, job: j, task: &config.Task{}, own: forTemplates(j.Params), used: map[string]any{}, tokens: map[tokenKey]token{}}
}

func forTemplates(p profile.Params) profile.Object {
	all := make(profile.Object, len(p))
	for name, v := range p {
		all[name] = v.ForTemplate()
	}
	return all
}

// unknownError is that others could not be asked what a template needs: nothing
// is wrong with the template.
type unknownError struct{ err error }

func (e *unknownError) Error() string { return e.err.Error() }
func (e *unknownError) Unwrap() error { return e.err }

// memberParams are the effective params of the member; none without a cluster.
func (f *facts) memberParams() (profile.Object, error) {
	if !f.asked && f.o.Params != nil {
		ctx, cancel := context.WithTimeout(f.ctx, askTime)
		defer cancel()
		p, err := f.o.Params(ctx)
		if err != nil {
			f.trouble = &unknownError{err}
		}
		f.member = forTemplates(p)
	}
	f.asked = true
	return f.member, f.trouble
}

// Param is the value of a param: the job's own, else the member's. One that
// does not exist is an error.
func (f *facts) Param(name string) (any, error) {
	v, ok, err := f.param(name)
	if !isSetting(name) {
		f.reads++
	}
	if _, own := f.own[name]; own {
		f.ownReads++
	}
	if err == nil && !ok {
		err = fmt.Errorf("there is no param %q: guard it with {{if .ParamExists %q}}", name, name)
	}
	return asFilter(name, v), err
}

// isSetting reports whether a param is one of jorc's own settings: its value is no
// secret.
func isSetting(param string) bool { return strings.HasPrefix(param, "cluster/") }

// ParamExists reports whether a param exists, null and defaults included.
func (f *facts) ParamExists(name string) (bool, error) {
	_, ok, err := f.param(name)
	return ok, err
}

func (f *facts) param(name string) (v any, ok bool, err error) {
	if v, ok := f.own[name]; ok {
		return v, true, nil
	}
	member, err := f.memberParams()
	if err != nil {
		return nil, false, fmt.Errorf("param %q: the job has none, and those of this member cannot be read: %w", name, err)
	}
	if v, ok = member[name]; ok {
		f.used[name] = v
	}
	if !ok || v == nil || v == "" {
		if fallback, has := f.defaultParam(name); has {
			return fallback, true, nil
		}
	}
	return v, ok, nil
}

// defaultParam returns the value that a param with a meaning has where it is not
// set, or is null or empty.
func (f *facts) defaultParam(name string) (v any, ok bool) {
	switch name {
	case "cluster/" + cluster.RoleLeader, "cluster/" + cluster.RoleManager:
		return false, true
	case cluster.ParamFilter:
		if own := f.ClusterProfile(); own != "" {
			return "Profiles Eq " + own, true // as drpcli reads it
		}
	}
	return nil, false
}

// Params are all params by name.
func (f *facts) Params() (profile.Object, error) {
	member, err := f.memberParams()
	if err != nil {
		return nil, fmt.Errorf("the params of this member cannot be read: %w", err)
	}
	f.reads++
	f.ownReads++
	all := make(profile.Object, len(member)+len(f.own))
	maps.Copy(all, member)
	maps.Copy(f.used, member)
	maps.Copy(all, f.own)
	if v, ok := all[cluster.ParamFilter]; ok {
		all[cluster.ParamFilter] = asFilter(cluster.ParamFilter, v)
	}
	return all, nil
}

// ClusterProfile is the name of the member's own cluster, whatever params the
// job has; empty while it is not known.
func (f *facts) ClusterProfile() string {
	member, err := f.memberParams()
	if err != nil {
		return ""
	}
	name, _ := member[paramProfile].(string)
	return name
}

// Version is the version that the job is for. None is an error: an empty one
// would end up in paths and package names.
func (f *facts) Version() (string, error) {
	if f.job.Version == "" {
		return "", errors.New("this host has no version yet: guard it with {{if .VersionExists}}")
	}
	return f.job.Version, nil
}

// VersionExists reports whether the job is for a version.
func (f *facts) VersionExists() bool { return f.job.Version != "" }

// Node is this node's name.
func (f *facts) Node() string { return f.o.Node }

// Job has the fields ID, Workflow, Origin and Run: the run that the job belongs
// to, or empty.
func (f *facts) Job() struct{ ID, Workflow, Origin, Run string } {
	run, ok := strings.CutPrefix(f.job.Origin, originRun)
	if !ok {
		run = ""
	}
	return struct{ ID, Workflow, Origin, Run string }{f.job.ID, f.job.Workflow, f.job.Origin, run}
}

// ParamsOf are the effective params of a node in its cluster, for
// Options.Params; none where there is no such cluster.
func ParamsOf(c *fleet.Cluster, node string) func(ctx context.Context) (profile.Params, error) {
	return func(ctx context.Context) (profile.Params, error) {
		v, err := c.View(ctx, node)
		if errors.Is(err, cluster.ErrNoCluster) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return v.Effective(false).Params(), nil
	}
}

// TokensOf makes tokens for the profiles of clusters below prefix, for
// Options.Tokens; own is the cluster that an empty name means.
func TokensOf(client *consul.Client, prefix, own string) func(ctx context.Context, name string, ttl time.Duration) (string, error) {
	return func(ctx context.Context, name string, ttl time.Duration) (string, error) {
		if name == "" {
			name = own
		} else if err := text.CheckName(name); err != nil {
			return "", fmt.Errorf("cluster: %w: %w", ErrInvalid, err)
		}
		t, err := fleet.New(client, prefix, name).ProfileToken(ctx, ttl)
		switch {
		case errors.Is(err, cluster.ErrNoACLs):
			return "", nil
		case errors.Is(err, cluster.ErrInvalid):
			return "", fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return t.Secret, err
	}
}

// tokenKey identifies one of the tokens of a job.
type tokenKey struct {
	profile string // the cluster; empty: the own
	ttl     time.Duration
}

type token struct {
	secret string
	err    error
}

// ProfileToken is an ACL token that may read and write the profile of the own
// cluster, for two hours from now; empty where ACLs are switched off.
func (f *facts) ProfileToken() (string, error) {
	return f.token(tokenKey{ttl: fleet.DefaultTokenTTL})
}

// GenerateProfileToken is such a token for the profile of a cluster, for a whole
// number of seconds.
func (f *facts) GenerateProfileToken(profile string, seconds any) (string, error) {
	n, err := strconv.ParseInt(fmt.Sprint(seconds), 10, 64)
	least, most := int64(fleet.MinTokenTTL/time.Second), int64(fleet.MaxTokenTTL/time.Second)
	if err != nil || n < least || n > most {
		return "", fmt.Errorf("a token that lives %v seconds: %w: Consul takes %d to %d", seconds, ErrInvalid, least, most)
	}
	if profile == "" {
		return "", fmt.Errorf("a token for a profile: %w: the name of the cluster is empty", ErrInvalid)
	}
	return f.token(tokenKey{profile, time.Duration(n) * time.Second})
}

// TokenIfPossible is ProfileToken for scripts that can do without: empty for a
// task with a token_file, on a host without a cluster, and where no token can be
// made.
func (f *facts) TokenIfPossible() string {
	if f.task.TokenFile != "" || f.ClusterProfile() == "" {
		return ""
	}
	secret, err := f.ProfileToken()
	if err != nil {
		return ""
	}
	return secret
}

// token makes a token, or has made it already. For the own cluster it is empty where jorc may
// make none and the task has a token_file, which the functions of scripts use then.
func (f *facts) token(k tokenKey) (string, error) {
	f.reads++
	t, ok := f.tokens[k]
	if !ok {
		t = f.mint(k)
		f.tokens[k] = t
	}
	if !errors.Is(t.err, consul.ErrDenied) {
		return t.secret, t.err
	}
	own := f.ClusterProfile()
	if f.task.TokenFile == "" {
		return "", fmt.Errorf("%w; what to do: one of them runs 'jorc cluster profile token --cluster %s > FILE', and the task gets token_file = \"FILE\"", t.err, cmp.Or(k.profile, own))
	}
	if k.profile == "" || k.profile == own {
		return "", nil
	}
	return "", fmt.Errorf("%w; what to do: one of them runs 'jorc cluster profile token --cluster %s > FILE', and the script reads that file instead: "+
		"the task's token_file is for its own cluster", t.err, k.profile)
}

func (f *facts) mint(k tokenKey) (t token) {
	if f.o.Tokens == nil {
		return token{err: errors.New("this job has no cluster that could make a token: give the task a token_file")}
	}
	ctx, cancel := context.WithTimeout(f.ctx, askTime)
	defer cancel()
	if t.secret, t.err = f.o.Tokens(ctx, k.profile, k.ttl); unanswered(t.err) {
		t.err = &unknownError{t.err}
	}
	return t
}

// unanswered reports whether a request may succeed later. A refusal is final: a job
// that waited for rights would keep the others on this host waiting.
func unanswered(err error) bool {
	for _, later := range []error{consul.ErrUnreachable, consul.ErrRateLimited, consul.ErrOutcomeUnknown, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, later) {
			return true
		}
	}
	return false
}

// secrets are the tokens that were made for the job so far, sorted.
func (f *facts) secrets() []string {
	all := map[string]bool{}
	for _, t := range f.tokens {
		if t.secret != "" {
			all[t.secret] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// betrays reports whether a text holds a token.
func (f *facts) betrays(text string) bool {
	return slices.ContainsFunc(f.secrets(), func(s string) bool { return strings.Contains(text, s) })
}

// discreet is err without the tokens.
func (f *facts) discreet(err error) error {
	if err == nil || !f.betrays(err.Error()) {
		return err
	}
	text := err.Error()
	for _, s := range f.secrets() {
		text = strings.ReplaceAll(text, s, "[redacted]")
	}
	return errors.New(text)
}

package workflow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/profile"
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

	used   map[string]any // params of the member that templates have read
	tokens map[tokenKey]token
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
	if err == nil && !ok {
		err = fmt.Errorf("there is no param %q: guard it with {{if .ParamExists %q}}", name, name)
	}
	return v, err
}

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
	all := make(profile.Object, len(member)+len(f.own))
	maps.Copy(all, member)
	maps.Copy(f.used, member)
	maps.Copy(all, f.own)
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

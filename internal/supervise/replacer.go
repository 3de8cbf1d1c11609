package supervise

import (
	"context"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/replace"
)

// Replacer brings files to disk.
type Replacer interface {
	Replace(ctx context.Context, u replace.Unit) (replace.Outcome, error)
}

// Replacer returns next with the processes informed of the files that it replaces,
// and of their variables, which do not reach next.
func (s *Supervisor) Replacer(next Replacer) Replacer { return observed{s, next} }

type observed struct {
	supervisor *Supervisor
	next       Replacer
}

// Replace implements Replacer.
func (o observed) Replace(ctx context.Context, u replace.Unit) (replace.Outcome, error) {
	if name, ok := strings.CutPrefix(u.Files[0].Name, variablesPrefix); ok && u.Files[0].Destination == "" {
		return replace.Outcome{}, o.supervisor.setVariables(name, u.Files[0].Data)
	}
	out, err := o.next.Replace(ctx, u)
	for _, p := range o.supervisor.list() {
		p.replaced(u.Files, out.Changed, err == nil)
	}
	return out, err
}

func (s *Supervisor) setVariables(name string, data []byte) error {
	for _, p := range s.list() {
		if p.name == name {
			return p.setVariables(data)
		}
	}
	return nil // the process was removed meanwhile
}

// replaced notes files that were replaced; complete: all are as their data says.
func (p *process) replaced(files []replace.File, changed []string, complete bool) {
	p.update(func(in *input) (differs bool) {
		for _, f := range files {
			if !slices.Contains(in.conf.Templates, f.Name) {
				continue
			}
			if slices.Contains(changed, f.Destination) {
				in.changes++
				differs = true
			}
			if complete && !in.rendered[f.Name] {
				in.rendered[f.Name] = true
				differs = true
			}
		}
		return differs
	})
}

func (p *process) setVariables(data []byte) error {
	var err error
	p.update(func(in *input) bool {
		var vars []string
		if vars, err = variables(in.conf.Env, data); err != nil {
			return false
		}
		differs := !in.known || !slices.Equal(in.vars, vars)
		in.known, in.vars = true, vars
		return differs
	})
	return err
}

package watch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/replace"
)

// ErrNotTaken: the files of a stage wait for a grant, so nothing was replaced.
var ErrNotTaken = errors.New("new content is not taken")

// NotTakenError says why the files of a stage are not replaced. It wraps ErrNotTaken.
type NotTakenError struct{ Stage, Why string }

func (e *NotTakenError) Error() string { return fmt.Sprintf("stage %q: %s", e.Stage, e.Why) }

func (e *NotTakenError) Unwrap() error { return ErrNotTaken }

// notTakenText is why a unit waits for a grant.
func notTakenText(err error) string {
	var e *NotTakenError
	if errors.As(err, &e) {
		return e.Error()
	}
	return oneLine(err)
}

// Stager decides when the files of a stage are replaced. Package stage implements it.
type Stager interface {
	// Take returns nil if the host may replace its files by what s describes, or an
	// error that wraps ErrNotTaken. The checks of the files have passed.
	Take(ctx context.Context, s Staged) error
	// Replaced notes the end of a job. taken: Take returned nil. If err is nil the
	// files are as s says.
	Replaced(s Staged, taken bool, err error)
	// Changes is set when a unit that Take refused should be tried again.
	Changes() <-chan struct{}
}

// Staged is the content that a unit with a stage is about to have.
type Staged struct {
	Stage   config.Stage
	Unit    string
	Content string // digest of all files
	Inputs  []Input
	Files   []replace.File
}

// Input is one thing that files are made of. Its digest is the same on all hosts
// that have the same value. Name never contains a value.
type Input struct {
	ID, Name, Digest string
}

// stageOf returns the stage of a unit; nil: it has none.
func stageOf(u *unit) *config.Stage {
	for _, t := range u.templates {
		if t.conf.Stage != nil {
			return t.conf.Stage
		}
	}
	return nil
}

// stageName is the name of the stage of c's unit, of which all are templates; empty: it has
// none.
func stageName(all []config.Template, c *config.Template) string {
	for i := range all {
		t := &all[i]
		if t.Stage != nil && (t.Name == c.Name || c.Together != "" && t.Together == c.Together) {
			return t.Stage.Name
		}
	}
	return ""
}

// stagedUnit completes u for a unit with a stage; done is to be called with the
// error of Replace.
func (e *Engine) stagedUnit(j *job, u *replace.Unit) (done func(error)) {
	conf := stageOf(j.unit)
	if conf == nil {
		return func(error) {}
	}
	if e.o.Stages == nil {
		u.Gate = func(context.Context) (func(), error) {
			return nil, &NotTakenError{conf.Name, "only a running agent takes new content"}
		}
		return func(error) {}
	}
	s := Staged{Stage: *conf, Unit: u.Name, Files: u.Files, Inputs: inputsOf(j)}
	s.Content = ContentDigest(u.Files)
	taken := false
	u.Gate = func(ctx context.Context) (func(), error) {
		err := e.o.Stages.Take(ctx, s)
		taken = err == nil
		return nil, err
	}
	return func(err error) { e.o.Stages.Replaced(s, taken, err) }
}

// ContentDigest identifies the content of files.
func ContentDigest(files []replace.File) string {
	sum := sha256.New()
	for _, f := range files {
		data := sha256.Sum256(f.Data)
		fmt.Fprintf(sum, "%q %x\n", f.Destination, data)
	}
	return hex.EncodeToString(sum.Sum(nil)[:digestBytes])
}

// digestBytes is the length of digests: no two of a fleet's contents are likely to share one.
const digestBytes = 12

// inputsOf lists what the unit's files are made of. Lists of keys and the params
// of the host are taken apart, so that hosts which differ in one of them have the
// others in common.
func inputsOf(j *job) []Input {
	var all []Input
	seen := map[string]bool{}
	add := func(id, name string, value any) {
		if seen[id] {
			return
		}
		seen[id] = true
		all = append(all, Input{ID: id, Name: name, Digest: digest(id, value)})
	}
	for i, t := range j.unit.templates {
		source := t.hash()
		add("template\x00"+t.conf.Name, "template "+t.conf.Name, hex.EncodeToString(source[:]))
		r := &j.renderings[i]
		for id, d := range r.used {
			switch value := r.values[id].(type) {
			case profile.Params:
				for name, v := range value {
					add(id+"\x00"+name, "param "+name, string(v.JSON()))
				}
			case []*dep.KeyPair:
				for _, p := range value {
					add("key\x00"+p.Path, "key "+p.Path, p.Value)
				}
			default:
				add(inputID(d), d.String(), value)
			}
		}
	}
	return all
}

// inputID identifies a dependency: a key by its name, also where it is part of a list.
func inputID(d *dependency) string {
	if d.kind == kindKey && d.scope == (scope{}) {
		return "key\x00" + d.name
	}
	return d.id
}

// digest identifies one value of one input.
func digest(id string, value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		data = fmt.Appendf(nil, "%+v", value) // a value of Vault may have keys that JSON does not take
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q\n%s", id, data))
	return hex.EncodeToString(sum[:digestBytes])
}

// stageChanges is set when units with a stage are to be tried again.
func (e *Engine) stageChanges() <-chan struct{} {
	if e.o.Stages == nil {
		return nil
	}
	return e.o.Stages.Changes()
}

// touchStaged makes the units with a stage due.
func (e *Engine) touchStaged(now time.Time) {
	for _, u := range e.units {
		if stageOf(u) != nil {
			u.touch(now.Add(-u.wait.Min))
			u.queue.reschedule(u)
		}
	}
}

// RemovedDigest is the digest of an input that is no longer used.
func RemovedDigest(id string) string { return digest(id, "removed") }

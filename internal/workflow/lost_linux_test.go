package workflow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/crashtest"
)

// documents are what this package keeps on the disk.
var documents = map[string]crashtest.Document{
	"state of a trigger": {
		Write: func(dir, content string) error {
			w := &triggerWatcher{doc: triggerDoc(dir, "t"), log: hclog.NewNullLogger()}
			return w.save(triggerState{Of: "o", Known: true, Items: map[string]string{"item": content}})
		},
		Read: func(dir string) (string, error) {
			s, _, err := triggerDoc(dir, "t").Read()
			return s.Items["item"], err
		},
	},
	"record of a job": {
		Write: func(dir, content string) error {
			r := failingRunner(dir)
			j, err := createdJob(r)
			if err != nil {
				return err
			}
			j.rec.Why = content
			return r.save(j)
		},
		Read: func(dir string) (string, error) {
			r := failingRunner(dir)
			if err := r.sweep(); err != nil {
				return "", err
			}
			j, err := r.loadJob("j")
			if errors.Is(err, ErrNoJob) {
				return "", nil
			}
			if err != nil {
				return "", err
			}
			return j.rec.Why, nil
		},
	},
}

// failingRunner is a runner of the workflow w with one task.
func failingRunner(dir string) *Runner {
	return New(Options{StateDir: dir, Node: "n1", Workflows: []config.Workflow{{Name: "w", Tasks: []config.Task{{Name: "one", Script: "true\n"}, {Name: "two", Command: []string{"true"}}}}}})
}

// createdJob makes the job j, or reads it.
func createdJob(r *Runner) (*job, error) {
	leave, err := r.hold(context.Background())
	if err != nil {
		return nil, err
	}
	defer leave()
	return r.loadOrCreate(context.Background(), Job{ID: "j", Workflow: "w"})
}

func init() {
	children := crashtest.Documents(documents)
	children["create"] = func(dir string) error {
		_, err := createdJob(failingRunner(dir))
		return errors.Join(err, crashtest.Mark("created"))
	}
	children["forget"] = func(dir string) error {
		return errors.Join(failingRunner(dir).remove("j"), crashtest.Mark("removed"))
	}
	if code, child := crashtest.Child(children); child {
		os.Exit(code)
	}
}

// TestDocumentsSurvivePowerFailures: after any power failure the start finds each document old or new.
func TestDocumentsSurvivePowerFailures(t *testing.T) {
	t.Parallel()
	crashtest.TestDocuments(t, documents)
}

// TestJobSurvivesPowerFailures: a job is there as a whole or not at all, when it is created and
// when it is removed; one that was created stays, with its scripts.
func TestJobSurvivesPowerFailures(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, mark string
		before     bool // the job exists
		want       bool // it exists after the mark
	}{{"create", "created", false, true}, {"forget", "removed", true, false}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if test.before {
				if _, err := createdJob(failingRunner(dir)); err != nil {
					t.Fatal(err)
				}
			}
			n := crashtest.Record(t, test.name, dir).Replay(t, func(c *crashtest.Crash) error {
				r := failingRunner(dir)
				if err := r.sweep(); err != nil {
					return err
				}
				jobs, err := r.Jobs()
				if err != nil {
					return err
				}
				if len(jobs) > 1 || len(jobs) == 1 && jobs[0].State == Damaged {
					return fmt.Errorf("got jobs %+v", jobs)
				}
				if test.want && c.Marked(test.mark) && len(jobs) == 0 {
					return errors.New("the job is gone after it was created")
				}
				if len(jobs) == 1 {
					if info, err := os.Stat(filepath.Join(r.jobs, "j", fileName(0, "one"))); err != nil || info.Mode().Perm() != 0o700 {
						return fmt.Errorf("its script: %v, %w", info, err)
					}
				}
				return nil
			})
			t.Logf("%d states", n)
		})
	}
}

package fleet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
)

const changesFormat = 1

// attributable are the documents that commands alone write, and jobs that a member
// gave a token.
var attributable = []string{cluster.KeyControl, cluster.KeyProfile}

// Author is who makes the changes of a command.
type Author struct {
	Command string // with its arguments, as far as they hold no value
	Reason  string
	// By returns who runs the command. It is called when there is a change to record.
	By func(context.Context) (string, error)
}

// WithAuthor returns a context in which changes of clusters are recorded with their
// author, in the transactions that make them.
func WithAuthor(ctx context.Context, a Author) context.Context {
	return kv.WithRecorder(context.WithValue(ctx, authorKey{}, a), a)
}

type authorKey struct{}

// authorOf returns the author of the changes made with ctx; without one By is nil.
func authorOf(ctx context.Context) Author {
	a, _ := ctx.Value(authorKey{}).(Author)
	return a
}

// Record implements kv.Recorder.
func (a Author) Record(ctx context.Context, s *kv.Store, t *kv.Txn, writes []kv.Write) error {
	c := cluster.AuditRecord{AuditEntry: cluster.AuditEntry{Time: time.Now().UTC().Truncate(time.Second), Command: a.Command, Reason: a.Reason}}
	for _, w := range writes {
		switch {
		case strings.HasPrefix(w.Key, "orchestrate/"), w.Key == cluster.KeyElection, w.Key == cluster.KeyChanges, w.Key == cluster.KeyProfileHistory:
			continue // requests and locks
		default:
			c.Keys = append(c.Keys, w.Key)
		}
		if slices.Contains(attributable, w.Key) {
			if c.Documents == nil {
				c.Documents = map[string]string{}
			}
			c.Documents[w.Key] = w.Digest
		}
	}
	if len(c.Keys) == 0 {
		return nil
	}
	by, err := a.By(ctx)
	if err != nil {
		return err
	}
	c.By = by
	c.AuditEntry = c.Bounded()
	doc := kv.NewDoc[cluster.AuditLog](s, cluster.KeyChanges, changesFormat)
	old, err := doc.Get(ctx)
	if errors.Is(err, kv.ErrDamaged) {
		old.Value, err = cluster.AuditLog{}, nil // a new log
	}
	if err != nil {
		return err
	}
	doc.SwapIn(t, old, old.Value.With(c))
	return nil
}

// Changes reads the log of changes. It returns what kv.Doc.Get returns.
func (c *Cluster) Changes(ctx context.Context) (cluster.AuditLog, error) {
	e, err := c.changes.Get(ctx)
	return e.Value, err
}

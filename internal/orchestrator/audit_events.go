package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/text"
)

// Audited reports whether the event is part of the audit: a change that a command
// made, or one whose author is not known.
func (e Event) Audited() bool { return e.Audit != nil || e.AuthorUnknown }

// auditEvents are the events that are part of the audit.
func auditEvents(events []Event) []Event {
	return slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return !e.Audited() })
}

// operatorChanges returns the events for the changes in the log that were not
// journalled before.
func operatorChanges(log cluster.AuditLog, last AuditMark) []Event {
	changes, gone := log.After(last.Log, last.Number)
	events := make([]Event, 0, len(changes))
	for i, c := range changes {
		c.Log = log.ID
		e := changeEvent(c.Bounded())
		if i == 0 && gone > 0 {
			e.Text += fmt.Sprintf("; %d changes before it are no longer in the log", gone)
		}
		events = append(events, e)
	}
	return events
}

// changeEvent is the event for a change.
func changeEvent(c cluster.AuditEntry) Event {
	keys := text.FewOf(", ", c.Keys, len(c.Keys)+c.More)
	said := c.Command + " by " + cmp.Or(c.By, "unknown")
	if c.Reason != "" {
		said += ": " + c.Reason
	}
	return Event{Kind: event.OperatorChange, Text: said + " (" + keys + ")", Audit: &c}
}

// lastChange is the mark of the last change of the log among events; of none it is
// before.
func lastChange(events []Event, before AuditMark) AuditMark {
	for _, e := range events {
		if e.Audit != nil {
			before = AuditMark{e.Audit.Log, e.Audit.Number}
		}
	}
	return before
}

// Audit is what is known about who changed a cluster.
type Audit struct {
	Events []Event // the oldest first; without numbers: not journalled yet
	Seq    uint64  // of the last event of any kind
	// Problems are batches and logs that cannot be read; Events lacks what they hold.
	Problems error
}

// ReadAudit reads all audit events that are kept, and the changes in the log that no
// orchestrator has journalled yet. It returns kv.ErrDamaged for a pointer that cannot
// be read, kv.ErrNewer or a class of package consul.
func ReadAudit(ctx context.Context, s *kv.Store, c *fleet.Cluster) (Audit, error) {
	log, problem := c.Changes(ctx) // first: what is journalled meanwhile is not missed
	if problem != nil && !errors.Is(problem, kv.ErrDamaged) {
		return Audit{}, problem
	}
	events, commit, err := readKept(ctx, s, auditAlone, 0, 0)
	if err != nil && (!errors.Is(err, kv.ErrDamaged) || commit.Seq == 0) {
		return Audit{}, err
	}
	events = append(events, pending(log, commit.Audited)...)
	return Audit{Events: events, Seq: commit.Seq, Problems: errors.Join(problem, err)}, nil
}

// pending are the changes of a log that are not journalled, with their own times.
func pending(log cluster.AuditLog, last AuditMark) []Event {
	events := operatorChanges(log, last)
	for i := range events {
		events[i].Time = events[i].Audit.Time
	}
	return events
}

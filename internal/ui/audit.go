package ui

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/orchestrator"
)

// Audit is who changed a cluster, when and why.
type Audit struct {
	About
	Changes []AuditRow `json:"changes"` // the newest first
	Paged
}

// AuditRow is one change.
type AuditRow struct {
	Time    time.Time `json:"time"`
	By      string    `json:"by"` // as the command claims; "unknown": it is not recorded
	Command string    `json:"command"`
	Reason  string    `json:"reason"`
	What    string    `json:"what"` // the keys that were written, or what was observed
	Seq     uint64    `json:"seq"`  // of its event; 0: it is not journalled yet
}

// auditIndexes are when what an audit is made of changed.
type auditIndexes struct{ view, changes uint64 }

// auditRead is an audit as it was read.
type auditRead struct {
	at    auditIndexes
	audit orchestrator.Audit
}

// Audit returns a page of the changes of the cluster. It returns a class of package consul.
func (f *Fleet) Audit(ctx context.Context, page Page) (Audit, error) {
	s, err := f.Snapshot(ctx)
	if err != nil {
		return Audit{}, err
	}
	v := Audit{About: s.about("cluster", "audit"), Changes: []AuditRow{}}
	read, err := f.feed.readAudit(ctx, s.audited)
	switch {
	case errors.Is(err, consul.ErrDenied), unreadable(err):
		v.Partial = append(v.Partial, err.Error())
	case err != nil:
		return Audit{}, err
	case read.Problems != nil:
		v.Partial = append(v.Partial, read.Problems.Error())
	}
	all := make([]AuditRow, 0, len(read.Events))
	for i := len(read.Events) - 1; i >= 0; i-- {
		if e := read.Events[i]; e.Audited() && !s.namesHidden(e) {
			all = append(all, auditRow(e))
		}
	}
	shown, paged := pageOf(all, page, len(all))
	v.Changes, v.Paged = append(v.Changes, shown...), paged
	return v, nil
}

func auditRow(e orchestrator.Event) AuditRow {
	c := e.Audit
	if c == nil {
		return AuditRow{Time: e.Time, By: "unknown", What: e.Text, Seq: e.Seq}
	}
	return AuditRow{Time: c.Time, By: cmp.Or(c.By, "unknown"), Command: c.Command, Reason: c.Reason, What: c.KeysText(), Seq: e.Seq}
}

// readAudit returns the audit; it is read again only after its keys changed.
func (f *feed) readAudit(ctx context.Context, at auditIndexes) (orchestrator.Audit, error) {
	f.reading.Lock()
	defer f.reading.Unlock() // viewers that ask for the same wait for one read
	if f.audit.at == at && at != (auditIndexes{}) {
		return f.audit.audit, nil
	}
	read, err := orchestrator.ReadAudit(ctx, f.cluster.Store(), f.cluster)
	if err == nil {
		f.audit = auditRead{at, read}
	}
	return read, err
}

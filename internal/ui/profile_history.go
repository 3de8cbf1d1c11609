package ui

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/profile"
)

// ProfileHistory is who changed the profile, when, why, and from what to what.
type ProfileHistory struct {
	About
	Shown   bool            `json:"shown"`   // values are in the answer; secret ones never are
	Changes []ProfileChange `json:"changes"` // the newest first
	// Unrecorded: something wrote the profile since the newest change without a record.
	Unrecorded bool `json:"unrecorded"`
	// Revert is the command line that undoes a change, without its ID.
	Revert string `json:"-"`
	Paged
}

// ProfileChange is one change of the profile.
type ProfileChange struct {
	ID      uint64         `json:"id"` // for 'jorc cluster profile revert'
	Time    time.Time      `json:"time"`
	By      string         `json:"by"` // as the command claims; "unknown": it is not recorded
	Command string         `json:"command"`
	Reason  string         `json:"reason"`
	Gap     bool           `json:"gap"` // something wrote the profile without a record just before
	Items   []ChangedParam `json:"items"`
	More    int            `json:"more"` // items that are left out
}

// ChangedParam is one value that a change changed.
type ChangedParam struct {
	In      string         `json:"in"`   // params, meta, schemas
	Role    string         `json:"role"` // empty: the cluster's
	Key     string         `json:"key"`
	Change  string         `json:"change"` // added, changed, removed
	Secret  bool           `json:"secret"` // its values are never shown
	Old     *profile.Value `json:"old,omitempty"`
	New     *profile.Value `json:"new,omitempty"`
	shown   bool
	inWords string
}

// Text is the item for people.
func (p ChangedParam) Text() string {
	if p.shown {
		return p.inWords
	}
	return profile.Item{In: p.In, Role: p.Role, Key: p.Key}.Name() + " " + p.Change
}

// historyRead is the history of the profile, and the profile of that moment, as they were
// read.
type historyRead struct {
	at      historyIndexes
	history profile.History
	profile profile.Document
}

// historyIndexes are when what a historyRead is made of changed.
type historyIndexes struct{ changes, profile uint64 }

// ProfileHistory returns a page of the changes of the profile; values asks for the values
// before and after. For a viewer who sees no params there are no changes. It returns a class
// of package consul.
func (f *Fleet) ProfileHistory(ctx context.Context, values bool, page Page) (ProfileHistory, error) {
	s, err := f.Snapshot(ctx)
	if err != nil {
		return ProfileHistory{}, err
	}
	v := ProfileHistory{About: s.about("cluster", "profile", "history"), Shown: values && !s.sealed, Changes: []ProfileChange{}, Revert: s.command("cluster", "profile", "revert", "ID")}
	if s.sealed || !s.State.Exists {
		return v, nil
	}
	h, d, err := f.feed.readProfileHistory(ctx, historyIndexes{s.audited.changes, s.State.Indexes[cluster.KeyProfile]})
	switch {
	case errors.Is(err, consul.ErrDenied), unreadable(err):
		v.Partial = append(v.Partial, err.Error())
		return v, nil
	case errors.Is(err, cluster.ErrNoCluster): // it was deleted since
		return v, nil
	case err != nil:
		return ProfileHistory{}, err
	}
	v.Unrecorded = len(h.Changes) > 0 && !h.Covers(d)
	shown := h.Shown(d)
	all := make([]ProfileChange, 0, len(h.Changes))
	for i := len(h.Changes) - 1; i >= 0; i-- {
		c := h.Changes[i]
		row := ProfileChange{ID: c.Number, Time: c.Time, By: cmp.Or(c.By, "unknown"), Command: c.Command, Reason: c.Reason, Gap: h.Gap(i), Items: []ChangedParam{}, More: c.More}
		for _, item := range shown[i] {
			row.Items = append(row.Items, changedParam(item, values))
		}
		if s.hidden == nil || !s.hidden.names.in(row) {
			all = append(all, row)
		}
	}
	some, paged := pageOf(all, page, len(all))
	v.Changes, v.Paged = append(v.Changes, some...), paged
	return v, nil
}

func changedParam(s profile.Shown, values bool) ChangedParam {
	p := ChangedParam{In: s.In, Role: s.Role, Key: s.Key, Change: "changed", Secret: s.Secret}
	switch {
	case s.Was == "":
		p.Change = "added"
	case s.Is == "":
		p.Change = "removed"
	}
	if values && !s.Secret {
		p.Old, p.New, p.shown, p.inWords = s.Old, s.New, true, s.String()
	}
	return p
}

// readProfileHistory returns the history of the profile and the profile of that moment; they
// are read again only after one of them changed.
func (f *feed) readProfileHistory(ctx context.Context, at historyIndexes) (profile.History, profile.Document, error) {
	f.reading.Lock()
	defer f.reading.Unlock() // viewers that ask for the same wait for one read
	if f.profile.at == at && at.changes != 0 {
		return f.profile.history, f.profile.profile, nil
	}
	h, d, err := f.cluster.ProfileHistory(ctx)
	if err == nil {
		f.profile = historyRead{at, h, d}
	}
	return h, d, err
}

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
)

// profileChanged is one change in the answer of `profile history -o json`.
type profileChanged struct {
	ID      uint64    `json:"id"`
	Time    time.Time `json:"time"`
	By      string    `json:"by"`
	Command string    `json:"command"`
	Reason  string    `json:"reason"`
	// Gap: between this change and the one before it something wrote the profile without a
	// record.
	Gap   bool           `json:"gap"`
	Items []changedValue `json:"items"`
	More  int            `json:"more"` // items that are left out
}

// changedValue is one value that a change changed.
type changedValue struct {
	In     string `json:"in"`   // params, meta, schemas
	Role   string `json:"role"` // empty: the cluster's
	Key    string `json:"key"`
	Secret bool   `json:"secret"`
	// OldDigest and NewDigest are empty when there was, or is, no value.
	OldDigest string         `json:"old_digest"`
	NewDigest string         `json:"new_digest"`
	Old       *profile.Value `json:"old,omitempty"` // left out: secret, or no longer kept
	New       *profile.Value `json:"new,omitempty"`

	text string
}

func (e *environment) profileHistory(c *cli.Context, cl *target) error {
	if err := notNegative(c, "limit"); err != nil {
		return err
	}
	h, d, err := cl.ProfileHistory(c.Context)
	if err != nil {
		return err
	}
	key := argument(c, 0)
	if key != "" && len(h.Of(key)) == 0 && !hasKey(d, key) {
		return fmt.Errorf("param %q of cluster %q: it does not exist, and nothing in the history is about it%s", key, cl.Name(), text.Unknown(key, "params", d.Params.Keys()))
	}
	if !h.Covers(d) {
		note(c, "the profile was changed since the last recorded change, by a write to Consul's KV, an older jorc, or with a token that may not write the history")
	}
	shown := []profileChanged{}
	for i, items := range h.Shown(d) {
		change := h.Changes[i]
		entry := profileChanged{change.Number, change.Time, change.By, change.Command, change.Reason, h.Gap(i), []changedValue{}, change.More}
		for _, s := range items {
			if key == "" || s.Key == key {
				entry.Items = append(entry.Items, changedValue{s.In, s.Role, s.Key, s.Secret, s.Was, s.Is, s.Old, s.New, s.String()})
			}
		}
		if key == "" || len(entry.Items) > 0 {
			shown = append(shown, entry)
		}
	}
	if limit := c.Int("limit"); limit > 0 {
		shown = shown[max(0, len(shown)-limit):]
	}
	return e.print(c, listingOf("id,time,by,command,reason,what", shown, func(p profileChanged) []string {
		const most = 3
		var texts []string
		for _, i := range p.Items[:min(len(p.Items), most)] {
			texts = append(texts, i.text)
		}
		return []string{
			strconv.FormatUint(p.ID, 10), when(p.Time), cmp.Or(p.By, "unknown"), p.Command, p.Reason, text.FewOf("; ", texts, len(p.Items)+p.More),
		}
	}), shown)
}

// hasKey reports whether a document has a param, schema or entry of meta with that name.
func hasKey(d profile.Document, key string) bool {
	for _, p := range append([]profile.Params{d.Params, d.Meta, d.Schemas}, slices.Collect(maps.Values(d.Roles))...) {
		if _, ok := p[key]; ok {
			return true
		}
	}
	return false
}

func (e *environment) revertProfile(c *cli.Context, cl *target) error {
	id := argument(c, 0)
	number, err := strconv.ParseUint(strings.TrimSpace(id), 10, 64)
	if err != nil {
		return usagef(c, "ID: %q is no number of a change; 'jorc cluster profile history' lists them", id)
	}
	d, reverted, err := cl.RevertProfile(c.Context, number)
	if err == nil && !reverted {
		note(c, "nothing to do: all of change %d is as it was before it", number)
	}
	return warnSize(c, d, err)
}

package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/profile"
)

func setParam(t *testing.T, c *fleet.Cluster, key, text string) {
	t.Helper()
	if _, err := c.Set(t.Context(), profile.Scope{}, key, clustertest.Value(t, text), profile.Ref{}); err != nil {
		t.Fatal(err)
	}
}

func historyOf(t *testing.T, c *fleet.Cluster) (profile.History, profile.Document) {
	t.Helper()
	h, d, err := c.ProfileHistory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h, d
}

// TestProfileHistoryInOneTransaction: a change and its inverse are written together, with
// their author; nothing is written when nothing changes, and a change that is undone
// meanwhile by another process is refused.
func TestProfileHistoryInOneTransaction(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	setParam(t, c, "k", "1")
	ctx := fleet.WithAuthor(t.Context(), fleet.Author{Command: "test set k", Reason: "why", By: func(context.Context) (string, error) { return "ann", nil }})
	if _, err := c.Set(ctx, profile.Scope{}, "k", clustertest.Value(t, "2"), profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	h, d := historyOf(t, c)
	if n := len(h.Changes); n != 2 || !h.Covers(d) || h.Changes[0].By != "" || h.Changes[1].By != "ann" || h.Changes[1].Command != "test set k" || h.Changes[1].Reason != "why" {
		t.Fatalf("the history: %+v", h)
	}
	index := func(key string) uint64 {
		pair, _, err := s.Client().KVGet(t.Context(), "jorc/prod/"+key, consul.Query{})
		if err != nil || pair == nil {
			t.Fatal(pair, err)
		}
		return pair.ModifyIndex
	}
	if p, h := index("profile"), index("audit/profile"); p != h {
		t.Errorf("the profile was written at %d, its history at %d", p, h)
	}
	before := index("audit/profile")
	if _, err := c.Set(ctx, profile.Scope{}, "k", clustertest.Value(t, "2"), profile.Ref{}); err != nil || index("audit/profile") != before {
		t.Errorf("nothing changed, %v, and the history was written", err)
	}
	if _, reverted, err := c.RevertProfile(ctx, 2); err != nil || !reverted {
		t.Errorf("revert: %t, %v", reverted, err)
	}
	if _, reverted, err := c.RevertProfile(ctx, 2); err != nil || reverted {
		t.Errorf("a second revert: %t, %v; want that it is so already", reverted, err)
	}
	setParam(t, c, "k", "9")
	if _, _, err := c.RevertProfile(ctx, 2); !errors.Is(err, profile.ErrMismatch) {
		t.Errorf("revert after another change: %v", err)
	}
	if h, _ := historyOf(t, c); len(h.Changes) != 4 {
		t.Errorf("%d changes, want 4", len(h.Changes))
	}
}

// TestProfileHistoryConcurrentWriters: each of the changes of many writers is in the history
// once, in the order of the profile, without a gap.
func TestProfileHistoryConcurrentWriters(t *testing.T) {
	t.Parallel()
	own, s := clustertest.Initialized(t)
	const writers, each = 8, 10
	var running sync.WaitGroup
	for w := range writers {
		c := fleet.New(s.Client(), "jorc", "prod")
		running.Go(func() {
			for i := range each {
				v, err := profile.ParseValue(fmt.Sprint(i))
				if err == nil {
					_, err = c.Set(t.Context(), profile.Scope{}, fmt.Sprintf("p%d", w), v, profile.Ref{})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	h, d := historyOf(t, own)
	if len(h.Changes) != writers*each || !h.Covers(d) {
		t.Errorf("%d changes, want %d; the last is that of the profile: %t", len(h.Changes), writers*each, h.Covers(d))
	}
	for i, c := range h.Changes {
		if c.Number != uint64(i+1) || len(c.Items) != 1 || h.Gap(i) {
			t.Errorf("change %d: %+v, a gap: %t", i, c, h.Gap(i))
		}
	}
}

// TestProfileHistoryLostAnswer: a write whose answer was lost is in the history once.
func TestProfileHistoryLostAnswer(t *testing.T) {
	t.Parallel()
	_, s := clustertest.Initialized(t)
	proxy := s.Proxy()
	c := fleet.New(proxy.Client(), "jorc", "prod")
	var mu sync.Mutex
	lost := 0
	proxy.Do(func(r *http.Request) consultest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/v1/txn" && r.Method == http.MethodPut && lost == 0 {
			lost++
			return consultest.Fault{Cut: 1}
		}
		return consultest.Fault{}
	})
	setParam(t, c, "k", "1")
	if h, d := historyOf(t, c); lost != 1 || len(h.Changes) != 1 || !h.Covers(d) {
		t.Errorf("%d answers lost, the history: %+v", lost, h)
	}
}

// TestProfileHistoryRights: a job's token for the profile may write its history and no other
// record; with a token for the key alone the change is made without one, and the gap shows.
func TestProfileHistoryRights(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	root := fleet.New(s.Client(), "jorc", "prod")
	if _, err := root.Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	author := fleet.Author{Command: "test", By: func(context.Context) (string, error) { return "job", nil }}
	change := func(token, text string) {
		t.Helper()
		c := fleet.New(s.ClientWithToken(token), "jorc", "prod")
		if _, err := c.Set(fleet.WithAuthor(t.Context(), author), profile.Scope{}, "k", clustertest.Value(t, text), profile.Ref{}); err != nil {
			t.Fatal(err)
		}
	}
	job, err := root.ProfileToken(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	change(job.Secret, "1")
	if h, d := historyOf(t, root); len(h.Changes) != 1 || !h.Covers(d) || h.Changes[0].By != "job" {
		t.Errorf("after a job's change: %+v", h)
	}
	if log, err := root.Changes(t.Context()); err != nil || len(log.Changes) != 0 {
		t.Errorf("a job wrote the audit: %+v, %v", log, err)
	}
	change(s.NewToken(`key_prefix "jorc/prod/" { policy = "read" } key "jorc/prod/profile" { policy = "write" }`), "2")
	if h, d := historyOf(t, root); len(h.Changes) != 1 || h.Covers(d) {
		t.Errorf("after a change without the right: %+v, covers the profile: %t", h, h.Covers(d))
	}
	change(job.Secret, "3")
	if h, d := historyOf(t, root); len(h.Changes) != 2 || !h.Covers(d) || !h.Gap(1) {
		t.Errorf("after a change behind it: %+v", h)
	}
}

// TestProfileHistoryOfLargeProfile: a profile that fills a transaction is written together with as
// much of the history as fits; one that fits in none is written, and then its history.
func TestProfileHistoryOfLargeProfile(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	for _, size := range []int{100, 300, 370, 450} { // KiB
		setParam(t, c, "large", fmt.Sprintf("%q", strings.Repeat("x", size<<10)))
		setParam(t, c, "small", fmt.Sprint(size))
		h, d := historyOf(t, c)
		pair, _, err := s.Client().KVGet(t.Context(), "jorc/prod/audit/profile", consul.Query{})
		if err != nil {
			t.Fatal(err)
		}
		document, _, err := s.Client().KVGet(t.Context(), "jorc/prod/profile", consul.Query{})
		if err != nil {
			t.Fatal(err)
		}
		if together := document.ModifyIndex == pair.ModifyIndex; together != (size < 380) {
			t.Errorf("with %d KiB: written in one transaction: %t", size, together)
		}
		n := len(h.Changes)
		if !h.Covers(d) || n == 0 || h.Changes[n-1].Items[0].Key != "small" || len(pair.Value) > 130<<10 {
			t.Errorf("with %d KiB: %d changes in %d bytes", size, n, len(pair.Value))
		}
		if _, reverted, err := c.RevertProfile(t.Context(), h.Changes[n-1].Number); err != nil || !reverted {
			t.Errorf("with %d KiB: revert: %t, %v", size, reverted, err)
		}
	}
}

// TestProfileHistoryOfImport: what an import overwrote can be brought back; a damaged history
// stops no change, and begins again.
func TestProfileHistoryOfImport(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	setParam(t, c, "k", "1")
	archive, err := c.Export(t.Context(), func(key string, err error) { t.Error(key, err) })
	if err != nil {
		t.Fatal(err)
	}
	if data, err := json.Marshal(archive); err != nil || strings.Contains(string(data), `"before"`) {
		t.Errorf("an export with the history: %s, %v", data, err)
	}
	setParam(t, c, "k", "2")
	if err := c.Import(t.Context(), archive, true); err != nil {
		t.Fatal(err)
	}
	h, d := historyOf(t, c)
	if len(h.Changes) != 3 || !h.Covers(d) {
		t.Fatalf("after an import: %+v", h)
	}
	if d, _, err := c.RevertProfile(t.Context(), 3); err != nil || d.Params["k"].String() != "2" {
		t.Errorf("revert of the import: %v, %v", d.Params["k"], err)
	}
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/prod/audit/profile", Value: []byte("garbage")}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.ProfileHistory(t.Context()); err == nil {
		t.Error("a damaged history is read")
	}
	setParam(t, c, "k", "4")
	if now, _ := historyOf(t, c); len(now.Changes) != 1 || now.ID == h.ID {
		t.Errorf("after the damage: %+v", now)
	}
}

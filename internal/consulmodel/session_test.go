package consulmodel_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
)

// TestSessionsEndAgainstConsul: a session ends when it was not renewed for twice its TTL, and not before; its keys are then
// released or deleted, and cannot be locked for a while.
func TestSessionsEndAgainstConsul(t *testing.T) {
	const ttl, modelTTL = time.Second, 10 * time.Second // a model takes no less
	server := consultest.Start(t, consultest.WithConfig(map[string]any{"session_ttl_min": ttl.String()}))
	for _, behavior := range []string{"release", "delete"} {
		t.Run(behavior, func(t *testing.T) {
			w := newTwins(t, server, behavior+"/")
			key := w.keys[0]
			w.same(http.MethodPut, "/v1/kv/"+key, "first") // from here both count the same changes
			session := func(real, model time.Duration) pair[string] {
				const body = `{"Name":"x","TTL":%q,"NodeChecks":[],"LockDelay":"1m","Behavior":%q}`
				return w.session(pair[string]{fmt.Sprintf(body, real.String(), behavior), fmt.Sprintf(body, model.String(), behavior)})
			}
			first, second := session(ttl, modelTTL), session(time.Hour, time.Hour)
			w.acquire(key, first)
			renewed := pair[time.Time]{time.Now(), time.Now().Add(modelTTL)} // the model's clock is the test's decision
			if got, err := w.ask(http.MethodPut, "/v1/session/renew/"+first.real, nil); err != nil || got.status != http.StatusOK {
				t.Fatalf("renew: %d %v", got.status, err)
			}
			if got := w.model.Do(http.MethodPut, "/v1/session/renew/"+first.model, "", nil, renewed.model).Answer(); got.Status != http.StatusOK {
				t.Fatalf("the model refuses to renew: %d", got.Status)
			}
			consultest.Eventually(t, "the session ends", func(ctx context.Context) error {
				got, err := w.ask(http.MethodGet, "/v1/session/info/"+first.real, nil)
				if err == nil && string(got.body) != "[]" {
					err = fmt.Errorf("it lives: %s", got.body)
				}
				return err
			})
			if took := time.Since(renewed.real); took < 2*ttl {
				t.Errorf("Consul ended a session of %v after %v", ttl, took)
			}
			w.model.ExpireSessions(renewed.model.Add(2 * modelTTL))
			if w.model.Session(key) != first.model {
				t.Error("the model ends a session before twice its TTL has passed")
			}
			w.model.ExpireSessions(renewed.model.Add(2*modelTTL + time.Millisecond))
			w.same(http.MethodGet, "/v1/kv/"+key, "")
			w.acquire(key, second) // not during the delay
			w.same(http.MethodGet, "/v1/kv/"+key, "")
		})
	}
}

// TestRestoreAgainstConsul: once a snapshot was restored both have the keys, locks and sessions of it, with their indexes; what
// follows has higher ones than all before. Queries that block are answered with what they had seen.
func TestRestoreAgainstConsul(t *testing.T) {
	server := consultest.Start(t)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := newTwins(t, server, fmt.Sprintf("seed-%d/", seed))
			r, sessions, seen := w.begin(seed)
			some := func(n int) {
				for range n {
					w.random(r, &sessions, seen)
				}
			}
			for range 3 {
				some(100)
				taken, err := w.ask(http.MethodGet, "/v1/snapshot", nil)
				if err != nil || taken.status != http.StatusOK {
					t.Fatalf("take a snapshot: %d %v", taken.status, err)
				}
				snapshot := w.model.Snapshot()
				some(100)
				w.log = append(w.log, "restore")
				if got, err := w.ask(http.MethodPut, "/v1/snapshot", taken.body); err != nil || got.status != http.StatusOK {
					t.Fatalf("restore the snapshot: %d %v", got.status, err)
				}
				w.model.Restore(snapshot, time.Now())
				w.settle()
				for _, s := range sessions {
					w.renew(s)
				}
				for _, key := range w.keys {
					w.same(http.MethodGet, "/v1/kv/"+key, "")
				}
			}
			some(100)
			w.finish(sessions)
		})
	}
}

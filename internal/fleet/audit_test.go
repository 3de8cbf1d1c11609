package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/profile"
)

// TestAuditConcurrentWriters: of 20 writers at once no command fails for the record of
// another one, each change has one record, and the newest 100 are kept in a log whose size
// is bounded, however long the texts are.
func TestAuditConcurrentWriters(t *testing.T) {
	t.Parallel()
	own, s := clustertest.Initialized(t)
	const writers, each, kept = 20, 10, 100
	long := strings.Repeat("long ", 200)
	value := func(i int) profile.Value {
		v, err := profile.ParseValue(fmt.Sprint(i))
		if err != nil {
			t.Error(err)
		}
		return v
	}
	largest, total := 0, uint64(0)
	for round, text := range []string{"r", long} {
		var running sync.WaitGroup
		var mu sync.Mutex
		made := map[string]bool{} // by author and key
		for w := range writers {
			by := fmt.Sprintf("writer %d of %d", w, round)
			c := fleet.New(s.Client(), "jorc", "prod")
			ctx := fleet.WithAuthor(t.Context(), fleet.Author{
				Command: "test " + text, Reason: text, By: func(context.Context) (string, error) { return by, nil },
			})
			running.Go(func() {
				for i := range each {
					node, key := fmt.Sprintf("n%d-%d-%d", round, w, i), "profile"
					var err error
					if w%2 == 0 { // half of them write documents of their own
						key = "host/" + node + "/hold"
						_, err = c.Hold(ctx, cluster.Scope{Node: node}, cluster.Hold{Since: time.Unix(0, 0), By: by})
					} else {
						_, err = c.Set(ctx, profile.Scope{}, fmt.Sprintf("p%d", w), value(each*round+i), profile.Ref{})
					}
					if err != nil {
						t.Errorf("%s: %v", by, err)
					}
					mu.Lock()
					made[by+" "+key] = true
					mu.Unlock()
				}
			})
		}
		running.Wait()
		log, err := own.Changes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		total += writers * each
		if n := len(log.Changes); n == 0 || n > kept || round == 0 && n != kept || log.Changes[n-1].Number != total {
			t.Fatalf("round %d: %d changes are kept, want %d, the last is number %d, want %d", round, n, kept, log.Changes[max(0, n-1)].Number, total)
		}
		for i, c := range log.Changes {
			if c.Number != log.Changes[0].Number+uint64(i) || c.Log != log.ID || len(c.Keys) != 1 || !made[c.By+" "+c.Keys[0]] || c.More != 0 {
				t.Errorf("round %d: change %d: %+v", round, i, c)
			}
		}
		if changes, gone := log.After("", 0); uint64(len(changes))+gone != total {
			t.Errorf("round %d: %d changes and %d that are gone, want %d", round, len(changes), gone, total)
		}
		pair, _, err := s.Client().KVGet(t.Context(), "jorc/prod/audit/changes", consul.Query{})
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, len(pair.Value))
	}
	if largest > 48<<10 {
		t.Errorf("the log has %d bytes", largest)
	}
	t.Logf("the log had %d bytes at most", largest)
}

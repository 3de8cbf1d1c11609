package rollout_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
)

// testHistoryOfLargeFleet: the record of a rollout over 5,000 hosts, all of which failed
// with the longest text that a report holds, fits into a transaction beside others, lists
// 200 hosts and says how many it leaves out. With 100 such records the list and a single
// record can be read, and the oldest one goes when another one comes.
func testHistoryOfLargeFleet(t *testing.T, f *system) {
	const hosts, kept, listed = 5000, 100, 200
	store := kv.New(f.client, "jorc/"+f.name)
	f.trigger(rollout.Request{Version: "v1", By: strings.Repeat("b", 300), Reason: strings.Repeat("\x01", 1000)})
	if _, _, err := f.Abort(t.Context(), rollout.Stop{By: "ann", Reason: strings.Repeat("\x01", 1000)}); err != nil {
		t.Fatal(err)
	}
	s, err := f.Load(t.Context())
	if err != nil || !s.Unrecorded() {
		t.Fatalf("%+v, %v", s, err)
	}
	state := func(detail string) (state rollout.State) {
		for i := range hosts {
			state.Members = append(state.Members, rollout.Member{
				Node: fmt.Sprintf("%s-%04d", strings.Repeat("n", 120), i),
				Config: cluster.CategoryState{
					State: cluster.StateFailed, Version: "v1", Detail: detail, Began: s.Document.Started, Since: s.Document.Started.Add(time.Duration(i) * time.Second),
				},
			})
		}
		return state
	}
	for name, detail := range map[string]string{"plain": strings.Repeat("a", 10_000), "escaped": strings.Repeat("\x01", 10_000), "none": ""} {
		record := s.Ended(state(detail))
		if len(record.Hosts) != listed || record.Left != hosts-listed || record.Counts.Failed != hosts || record.Active.Hosts != hosts || record.Active.Most != hosts-1 {
			t.Errorf("%s: %d hosts, %d left, %+v, %+v", name, len(record.Hosts), record.Left, record.Counts, record.Active)
		}
		if h := record.Hosts[0]; h.Active == nil || *h.Active != hosts-1 || !strings.HasSuffix(h.Node, "-4999") {
			t.Errorf("%s: the first host is %+v, want the one with the longest time", name, h)
		}
		txn := store.Txn()
		f.Record(s, record, nil)(txn)
		if _, err := txn.Commit(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		pair, _, err := f.client.KVGet(t.Context(), "jorc/"+f.name+"/history/rollouts/"+record.ID, consul.Query{})
		if err != nil || pair == nil || len(pair.Value) > kv.MaxValue*3/4 {
			t.Errorf("%s: %v, or the record has too many bytes", name, err)
		} else {
			t.Logf("%s: the record has %d bytes, the transaction %d", name, len(pair.Value), txn.Size())
		}
		if s, err = f.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	record := s.Ended(state(strings.Repeat("a", 10_000)))
	var names []string
	for i := range kept + 3 {
		record.Started = record.Started.Add(time.Second)
		record.ID = record.Started.UTC().Format("20060102T150405Z") + "-v1"
		txn := store.Txn()
		f.Record(s, record, names)(txn)
		if _, err := txn.Commit(t.Context()); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		if s, err = f.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if names, err = f.RecordNames(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	all, bad, err := f.History(t.Context())
	if err != nil || len(bad) > 0 || len(all) != kept || all[0].ID != record.ID {
		t.Fatalf("%d records, %v, %v", len(all), bad, err)
	}
	t.Logf("%d records are read in %v", kept, time.Since(begin))
	begin = time.Now()
	if one, err := f.RecordOf(t.Context(), "v1"); err != nil || one.ID != record.ID || len(one.Hosts) != listed {
		t.Errorf("%+v, %v", one, err)
	}
	t.Logf("one is read in %v", time.Since(begin))
}

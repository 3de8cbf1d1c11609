package change_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
)

// TestLedgerCountsOn: a ledger that is earlier than the one that is known shows a restore, also where the answer to the first write is
// lost, and counts on from the known one: no two grants have the same ID.
func TestLedgerCountsOn(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	for name, test := range map[string]struct {
		stored, known change.Ledger
		lost          bool
		at            time.Time // when a restore was noticed
		want          change.Ledger
		restored      bool
	}{
		"nothing was restored":         {stored: change.Ledger{Term: 2, Seq: 5}, known: change.Ledger{Term: 2, Seq: 5}, want: change.Ledger{Term: 3, Seq: 1}},
		"nothing is known":             {stored: change.Ledger{Term: 2, Seq: 5}, want: change.Ledger{Term: 3, Seq: 1}},
		"an earlier term":              {stored: change.Ledger{Term: 1, Seq: 9}, known: change.Ledger{Term: 4, Seq: 2}, want: change.Ledger{Term: 5, Seq: 1}, restored: true},
		"earlier in the same term":     {stored: change.Ledger{Term: 4, Seq: 1}, known: change.Ledger{Term: 4, Seq: 2}, want: change.Ledger{Term: 5, Seq: 1}, restored: true},
		"and the first answer is lost": {stored: change.Ledger{Term: 1, Seq: 9}, known: change.Ledger{Term: 4, Seq: 2}, lost: true, want: change.Ledger{Term: 6, Seq: 1}, restored: true},
		"noticed otherwise":            {stored: change.Ledger{Term: 2, Seq: 5}, at: now.Add(-time.Minute), want: change.Ledger{Term: 3, Seq: 1}, restored: true},
		"noticed a long time ago":      {stored: change.Ledger{Term: 2, Seq: 5}, at: now.Add(-2 * time.Hour), want: change.Ledger{Term: 3, Seq: 1}},
		"another has written that": {
			stored: change.Ledger{Term: 2, Seq: 5, Quiet: now.Add(30 * time.Minute)}, at: now.Add(-time.Minute), want: change.Ledger{Term: 3, Seq: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := consultest.Start(t)
			doc := kv.NewDoc[change.Ledger](kv.New(server.Client(), "p"), cluster.KeyGrantLedger, 1)
			if _, err := doc.CompareAndSwap(t.Context(), kv.Entry[change.Ledger]{}, test.stored); err != nil {
				t.Fatal(err)
			}
			proxy, lose := server.Proxy(), test.lost
			proxy.Do(func(r *http.Request) consultest.Fault {
				body, err := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				if err != nil || !lose || r.Method != http.MethodPut || !bytes.Contains(body, []byte(consul.KVCAS)) {
					return consultest.Fault{}
				}
				lose = false
				return consultest.Fault{Cut: 1}
			})
			begun := time.Now()
			got, err := change.NewLedgers(kv.New(proxy.Client(), "p")).Renew(t.Context(), change.Renewal{Begin: true, Known: test.known, Restored: test.at, Quiet: time.Hour})
			quiet := got.Value.Quiet
			got.Value.Quiet = time.Time{}
			if err != nil || got.Value != test.want {
				t.Errorf("%+v, %v; want %+v", got.Value, err, test.want)
			}
			from := begun
			if !test.at.IsZero() {
				from = test.at
			}
			if restored := !quiet.Before(from.Add(time.Hour - time.Second)); restored != test.restored || test.stored.Quiet.Equal(quiet) == restored {
				t.Errorf("nothing is granted until %v, want that of a restore: %t", quiet, test.restored)
			}
		})
	}
}

package rollout_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/slots"
)

// lastMoment is slots of which the first is granted at the last moment before
// something else happens.
type lastMoment struct {
	*slots.Slots
	once sync.Once
	then func()
}

func (l *lastMoment) Acquire(ctx context.Context, group string, limit int, h slots.Holder) (*slots.Claim, error) {
	c, err := l.Slots.Acquire(ctx, group, limit, h)
	if err == nil {
		l.once.Do(l.then)
	}
	return c, err
}

// wantWaitAs waits until Enter has said why it waits, in words that begin so.
func (e *entering) wantWaitAs(t *testing.T, begin string) {
	t.Helper()
	consultest.Eventually(t, "a wait: "+begin, func(context.Context) error {
		select {
		case got := <-e.waits:
			if strings.HasPrefix(got, begin) {
				return nil
			}
			return fmt.Errorf("it waits: %s", got)
		case err := <-e.done:
			t.Fatalf("Enter has returned %v, want that it waits: %s", err, begin)
		default:
		}
		return fmt.Errorf("it says nothing")
	})
}

// TestGateLooksAgain: waiting for a slot takes time. What forbids a node to begin
// when it has its slot keeps it in service, and the slot is given back.
func TestGateLooksAgain(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t)
	in := time.Now().Add(6 * time.Hour).UTC()
	shut, err := rollout.ParseWindow(in.Format("15:04") + "-" + in.Add(time.Hour).Format("15:04"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		then func(*rollout.Document)
		says string
	}{
		"paused":  {func(d *rollout.Document) { d.Stopped = &rollout.Stop{Since: in} }, "the rollout is paused since"},
		"window":  {func(d *rollout.Document) { d.Policy.Windows = []rollout.Window{shut} }, "outside the window until"},
		"aborted": {func(d *rollout.Document) { d.Phase = rollout.Aborted }, "the rollout was aborted"},
		"full":    {func(d *rollout.Document) { d.Rule.Full = true }, "as many members are out of service as the policy allows"},
		"rule":    {func(d *rollout.Document) { d.Rule = rollout.Rule{} }, "not admitted yet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, server, "again-"+name, "n1")
			f.trigger("v1", 1, rollout.Policy{MaxParallel: rollout.Amount{N: 1}}, nil)
			var before rollout.Document
			h := f.host("n1")
			h.Gate = rollout.NewGate(rollout.GateOptions{
				Node: "n1", Snapshots: f.rollouts, Self: self{Node: "n1", Member: true}, Maintenance: h.upkeep, Checks: h.checks,
				Slots: &lastMoment{Slots: h.slots, then: func() {
					f.change(slots.Keep, func(d *rollout.Document) { before = *d; test.then(d) })
				}},
			})
			e := h.enter("v1")
			e.wantWaitAs(t, test.says)
			f.wantHolders()
			if h.upkeep.is() {
				t.Error("a node that may not begin is in maintenance")
			}
			f.change(slots.Keep, func(d *rollout.Document) { *d = before })
			e.wantIn(t)
			f.wantHolders("n1")
		})
	}
}

package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

// Order is the lease that an operator asks for another host, at host/<node>/maintenance. The host asks for it as
// long as the order is there; it ends with the order, or as every lease.
type Order struct {
	ID         string    `json:"id"` // of this order; the next one has another ID
	By         string    `json:"by,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	For        string    `json:"for,omitempty"` // durations as Go writes them
	Drain      string    `json:"drain,omitempty"`
	MinHealthy string    `json:"min_healthy,omitempty"`
	Since      time.Time `json:"since"`
}

const orderFormat = 1

// NewOrder returns the order of r by an operator.
func NewOrder(r Request, by string) Order {
	return Order{
		ID: r.ID, By: by, Reason: r.Reason, For: r.For.String(), Drain: r.Drain.String(), MinHealthy: r.MinHealthy.String(),
		Since: time.Now().UTC().Truncate(time.Second),
	}
}

// request is what the host asks for. A damaged duration is the default.
func (o Order) request() Request {
	duration := func(text string) time.Duration {
		d, _ := time.ParseDuration(text)
		return d
	}
	return Request{
		ID: o.ID, Reason: o.Reason, For: duration(o.For), Drain: duration(o.Drain), MinHealthy: duration(o.MinHealthy),
		Keep: orderKept, Connected: true, ordered: true,
	}
}

const (
	// orderKept is for how long the lease of an order outlives the agent that carries it out.
	orderKept = 15 * time.Minute
	// askAgain is the pause after a refusal, while the order is there.
	askAgain = 10 * time.Second
)

// OrderAt is the document with the order for node.
func OrderAt(s *kv.Store, node string) kv.Doc[Order] {
	return kv.NewDoc[Order](s, cluster.OrderKey(node), orderFormat)
}

// obeyOrders asks for the leases that operators order, until ctx ends.
func (h *Host) obeyOrders(ctx context.Context, s *kv.Store, node string) error {
	g, ctx := errgroup.WithContext(ctx)
	stop := context.CancelFunc(func() {})
	defer func() { stop() }()
	var id string // of the order that is carried out
	g.Go(func() error {
		return OrderAt(s, node).Watch(ctx, func(u kv.Update[Order]) {
			if u.Err != nil {
				return // what was read last counts
			}
			o := u.Entry.Value
			h.dropOrders(o.ID)
			if o.ID == id {
				return
			}
			stop()
			id = o.ID
			if id == "" {
				return
			}
			var carryOut context.Context
			carryOut, stop = context.WithCancel(ctx)
			g.Go(func() error { h.obey(carryOut, o); return nil })
		})
	})
	return g.Wait()
}

// dropOrders ends a lease that was ordered with another order than id.
func (h *Host) dropOrders(id string) {
	h.mu.Lock()
	if h.rec.Ordered && h.rec.ID != id {
		h.ending = true
	}
	h.mu.Unlock()
	h.news.Notify()
}

// obey asks for the lease of an order until that is over, or ctx ends.
func (h *Host) obey(ctx context.Context, o Order) {
	for ctx.Err() == nil && !h.obeyed(o.ID) {
		_, err := h.Begin(ctx, o.request(), func(Status) {})
		if err == nil || ctx.Err() != nil || h.obeyed(o.ID) {
			return
		}
		h.o.Log.Info("the lease that an operator ordered is asked for again", "id", o.ID, "by", o.By, "error", err, "again_in", askAgain)
		_ = concurrency.Sleep(ctx, askAgain) // ends with ctx
	}
}

// obeyed reports whether the lease of an order is over.
func (h *Host) obeyed(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rec.Obeyed == id
}

// Place orders a lease for node, unless there is another order. It returns a *Refusal of kind
// HeldByOther then, or what kv.Doc.Update returns.
func Place(ctx context.Context, c *fleet.Cluster, node string, o Order) error {
	_, err := OrderAt(c.Store(), node).Update(ctx, func(old kv.Entry[Order]) (Order, bool, error) {
		if old.Exists && old.Value.ID != o.ID {
			return o, false, &Refusal{
				Kind: HeldByOther, Final: true,
				Reason: fmt.Sprintf("%s has ordered a lease of it at %s: 'jorc maintenance end --node %s' ends that", old.Value.By, old.Value.Since.Format(time.RFC3339), node),
			}
		}
		return o, !old.Exists, nil
	})
	return err
}

// Withdraw removes the order for node; id is the one to remove, empty: any. It reports whether there was one.
func Withdraw(ctx context.Context, c *fleet.Cluster, node, id string) (was bool, err error) {
	doc := OrderAt(c.Store(), node)
	err = kv.RetryConflicts(ctx, func() error {
		e, err := doc.Get(ctx)
		if err != nil && !errors.Is(err, kv.ErrDamaged) {
			return err
		}
		if was = e.Exists && (id == "" || e.Value.ID == id); !was {
			return nil
		}
		return doc.Delete(ctx, e.Index)
	})
	return was, err
}

// AwaitOrder returns once the host is out of service and drained for the order id. told gets why it is not,
// whenever that changes. It returns ctx's error, or a *Refusal if the lease of the order is over.
func AwaitOrder(ctx context.Context, c *fleet.Cluster, node, id string, told func(reason string)) error {
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	news := concurrency.NewSignal()
	g, watch := errgroup.WithContext(watch)
	g.Go(func() error {
		return c.Reports().At(node).Watch(watch, func(kv.Update[cluster.Report]) { news.Notify() })
	})
	g.Go(func() error {
		return change.GrantsAt(c.Store(), node).Watch(watch, func(kv.Update[change.Grants]) { news.Notify() })
	})
	var result error
	g.Go(func() error {
		defer cancel()
		result = awaitOrder(watch, c, node, id, told, news)
		return nil
	})
	if err := g.Wait(); ctx.Err() == nil && result != nil && errors.Is(result, context.Canceled) {
		return err // a watch failed
	}
	return cmp.Or(ctx.Err(), result)
}

// awaitOrder looks again at each news.
func awaitOrder(ctx context.Context, c *fleet.Cluster, node, id string, told func(reason string), news concurrency.Signal) error {
	last, asked := "", false
	for {
		report, _, err := c.Report(ctx, node)
		if err != nil {
			return err
		}
		now, _, err := shown(ctx, c, node, report)
		if err != nil {
			return err
		}
		wish, _ := report.Wish()
		why := now.Waits
		switch {
		case wish.Order == id && wish.Ready:
			return nil
		case wish.Order == id:
			asked = true
		case asked:
			return &Refusal{Kind: Waiting, Reason: "the lease has ended", Final: true}
		case wish.ID != "":
			why = "it has a lease of its own" + cause(wish.Reason)
		default:
			why = "its agent has not taken up the order"
		}
		if why != "" && why != last {
			last = why
			told(why)
		}
		if err := news.Wait(ctx); err != nil {
			return err
		}
	}
}

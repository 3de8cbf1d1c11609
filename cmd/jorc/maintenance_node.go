package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/control"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/text"
)

// nodeFlag names another host; the operator's token orders its lease.
func nodeFlag() cli.Flag {
	return &cli.StringFlag{Name: "node", Usage: "another host, `N`: needs the token of an operator", DefaultText: "this host"}
}

// onNode calls other where --node is given, and own otherwise.
func (e *environment) onNode(own cli.ActionFunc, other func(c *cli.Context, cl *target, node string) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if !c.IsSet("node") {
			return own(c)
		}
		return e.onCluster(func(c *cli.Context, cl *target) error {
			node := c.String("node")
			if err := cl.CheckHost(c.Context, node); err != nil {
				return err
			}
			return other(c, cl, node)
		})(c)
	}
}

// beginOn orders the lease of another host, and waits for it.
func (e *environment) beginOn(c *cli.Context, cl *target, node string) error {
	by, err := e.author(c)
	if err != nil {
		return err
	}
	a, err := e.leaseAsked(c, orderID(by), "")
	if err != nil {
		return err
	}
	if err := mayBegin(c.Context, cl, node); err != nil {
		return err
	}
	if err := lease.Place(c.Context, cl.Cluster, node, lease.NewOrder(a.Request, by)); err != nil {
		return staysIn(err)
	}
	timeout := a.Timeout
	if a.Once {
		timeout = control.OnceWithin
	}
	ctx, cancel := withTimeout(c.Context, timeout)
	defer cancel()
	last := ""
	err = lease.AwaitOrder(ctx, cl.Cluster, node, a.ID, func(why string) {
		last = why
		note(c, "waiting: %s", printable(why))
	})
	if err != nil {
		if _, dropped := lease.Withdraw(context.WithoutCancel(c.Context), cl.Cluster, node, a.ID); dropped != nil {
			note(c, "the order stays: 'jorc maintenance end --node %s' ends it: %v", printable(node), dropped)
		}
		if errors.Is(err, context.DeadlineExceeded) && c.Context.Err() == nil {
			return &exitError{code: exitTimeout, err: fmt.Errorf("%s stays in service%s", printable(node), after(": ", printable(last)))}
		}
		return staysIn(err)
	}
	note(c, "%s is out of service; 'jorc maintenance end --node %s' ends it", printable(node), printable(node))
	return nil
}

// orderID is a new ID of an order by an operator, whose name may be longer than an ID.
func orderID(by string) string {
	unique := " " + rand.Text()[:12]
	return text.Line(by, lease.MostID-len(unique)) + unique
}

// mayBegin returns why no wait helps a host: no orchestrator, a pause, or that it is not a member.
func mayBegin(ctx context.Context, cl *target, node string) error {
	s, err := cl.LoadHost(ctx, node, cluster.NeedState)
	if err != nil {
		return err
	}
	if h := s.Hosts[node]; h == nil || !h.Member {
		return staysIn(&lease.Refusal{Kind: lease.NotMember, Final: true, Reason: printable(node) + " is not a member of the cluster"})
	}
	if what, h, halted := s.Control.Halted(); halted {
		return staysIn(&lease.Refusal{Kind: lease.Paused, Final: true, Reason: what + " " + h.String()})
	}
	is, err := fleet.Orchestrated(ctx, cl.Store())
	if err == nil && !is {
		err = staysIn(lease.Unorchestrated())
	}
	return err
}

// endOn withdraws the order for another host, and waits until its lease is over.
func (e *environment) endOn(c *cli.Context, cl *target, node string) error {
	if err := notNegative(c, "timeout"); err != nil {
		return err
	}
	was, err := lease.Withdraw(c.Context, cl.Cluster, node, "")
	if err != nil {
		return err
	}
	now, has, err := lease.ShowOne(c.Context, cl.Cluster, node)
	switch {
	case err != nil:
		return err
	case !has:
		return nil
	case !was && !now.Ordered:
		return &exitError{code: exitStopped, err: fmt.Errorf("the lease of %s was begun there%s: 'jorc maintenance end' on that host ends it, or 'jorc change give-up %s' frees its place",
			printable(node), after(": ", printable(now.Reason)), printable(node))}
	}
	return e.waitLease(c, cl, node)
}

func (e *environment) showOn(c *cli.Context, cl *target, node string) error {
	now, has, err := lease.ShowOne(c.Context, cl.Cluster, node)
	if err != nil {
		return err
	}
	if !has {
		return e.print(c, rowsOf("host,state", []string{node, "none"}), lease.Shown{Node: node, State: "none"})
	}
	if err := e.showLease(c, cl, node); err != nil || !now.Trouble {
		return err
	}
	return errNo
}

package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/ui"
)

// leaseChanges are the leases of hosts: none of them is over.
func (e *environment) leaseChanges(c *cli.Context, cl *target) (all []shownChange, err error) {
	leases, err := lease.ShowAll(c.Context, cl.Cluster)
	if err != nil {
		return nil, err
	}
	for _, l := range leases {
		all = append(all, shownChange{ChangeRow: ui.LeaseRow(l)})
	}
	return all, nil
}

func (e *environment) showLease(c *cli.Context, cl *target, node string) error {
	l, ok, err := lease.ShowOne(c.Context, cl.Cluster, node)
	if err != nil {
		return err
	}
	if !ok {
		return errLeaseOver(node)
	}
	return e.print(c, rowsOf("host,state,reason,since,until,waits", []string{l.Node, l.State, l.Reason, when(l.Since), when(l.Until), l.Waits}), l)
}

func errLeaseOver(node string) error {
	return errors.New("the lease of " + printable(node) + " is over")
}

// waitLease waits until the lease of a host is over.
func (e *environment) waitLease(c *cli.Context, cl *target, node string) error {
	ctx, cancel := withTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	err := lease.Wait(ctx, cl.Cluster, node)
	if errors.Is(err, context.DeadlineExceeded) && c.Context.Err() == nil {
		return &exitError{code: exitTimeout, err: errors.New("the lease of " + printable(node) + " is not over yet: 'jorc change show lease." + printable(node) + "'")}
	}
	return err
}

// giveUpLease gives up on the lease of a host; ok is false when it has none.
func (e *environment) giveUpLease(c *cli.Context, cl *target, host string) (ok bool, err error) {
	by, err := e.author(c)
	if err != nil {
		return false, err
	}
	err = lease.GiveUp(c.Context, cl.Cluster, host, by, c.String("reason"))
	if errors.Is(err, lease.ErrNone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	note(c, "the next host may begin; %s stays in maintenance until its lease ends", printable(host))
	return true, e.print(c, rowsOf("host,lease", []string{host, cluster.ChangeID(cluster.KindLease, host)}), map[string]string{"host": host, "lease": cluster.ChangeID(cluster.KindLease, host)})
}

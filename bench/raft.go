package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// checkedServices is how many services with a script check the node publishes.
const checkedServices = 5

// raftWrites counts the entries of the Raft log while an agent with script
// checks, whose output changes all the time, has nothing to say. Consul itself
// writes about once a minute: another one, started at the same time, shows that.
func raftWrites(ctx context.Context, b *bench) error {
	alone, err := b.startConsul(ctx, 0)
	if err != nil {
		return err
	}
	defer alone.proc.kill()
	c, err := b.startConsul(ctx, 0)
	if err != nil {
		return err
	}
	defer c.proc.kill()
	s := newKeySpace(10)("bench-jorc", c)
	if err := s.fill(ctx); err != nil {
		return err
	}
	w := work{name: fmt.Sprintf("%d script checks", checkedServices), templates: 10}
	agent, err := b.newContender(jorc, c)
	if err != nil {
		return err
	}
	defer agent.close()
	agent.cost.scenario = w.name
	templates, want := make([]string, w.templates), map[string]string{}
	for i := range templates {
		templates[i], want[file(i)] = s.template(i), s.content(i)
	}
	if err := agent.run(ctx, b, templates, scriptChecks(), want); err != nil {
		return err
	}
	if err := calm(ctx, c, 5*time.Second); err != nil {
		return err
	}
	writes, err := countWrites(ctx, b.size.raft, c, alone)
	if err != nil {
		return err
	}
	if err := agent.measure(); err != nil {
		return err
	}
	b.report.Processes = append(b.report.Processes, agent.cost)
	b.report.Rows = append(b.report.Rows, row{
		what: fmt.Sprintf("Raft writes in %s, %d script checks every second", b.size.raft, checkedServices), limit: 0,
		jorc: samples{max(writes[0]-writes[1], 0)},
		note: fmt.Sprintf("Beyond those of Consul itself: one that was started at the same time, without jorc, wrote %g meanwhile. "+
			"The scripts print another text each time. consul-template publishes no services.", writes[1]),
	})
	return nil
}

// countWrites counts what each of the servers adds to its Raft log within d.
func countWrites(ctx context.Context, d time.Duration, servers ...*consul) ([]float64, error) {
	writes := make([]float64, len(servers))
	read := func(sign float64) error {
		for i, c := range servers {
			index, err := c.raftIndex(ctx)
			if err != nil {
				return err
			}
			writes[i] += sign * float64(index)
		}
		return nil
	}
	if err := read(-1); err != nil {
		return nil, err
	}
	sleep(ctx, d)
	return writes, read(1)
}

func scriptChecks() string {
	var b strings.Builder
	for i := range checkedServices {
		fmt.Fprintf(&b, "service \"checked-%d\" {\n  port = %d\n  check {\n    script = [\"/bin/sh\", \"-c\", \"date +%%s%%N\"]\n"+
			"    interval = \"1s\"\n    timeout = \"5s\"\n  }\n}\n", i, 8000+i)
	}
	return b.String()
}

// calm returns when nothing was written for d, or after ten times d.
func calm(ctx context.Context, c *consul, d time.Duration) error {
	var last uint64
	for range 10 {
		index, err := c.raftIndex(ctx)
		if err != nil || index == last {
			return err
		}
		last = index
		sleep(ctx, d)
	}
	return nil
}

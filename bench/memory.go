package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Targets of the agents' resident memory, in MB, and how much it may grow: the mean of
// the last quarter divided by that of the second. In the first the runtime finds out
// how much memory the agent needs.
const (
	maxSmallMB   = 25
	maxLargeMB   = 100
	maxRSSGrowth = 1.05
)

// The agents whose memory is measured.
const (
	memoryServices  = 5
	memoryTemplates = 5
	memoryKeys      = 10000
)

// memoryEach is how often the memory is read.
const memoryEach = 10 * time.Second

// memoryReport is what a run of -memory found.
type memoryReport struct {
	Machine      machine
	Took         time.Duration
	small, large resident
	changes      int // of keys, checks and instances
}

// resident is the memory of an agent, in MB, one sample each memoryEach.
type resident struct {
	all    samples
	mapped samples // of all, pages of the program's file
}

// add notes what c takes now.
func (r *resident) add(c *contender) error {
	if err := c.measure(); err != nil {
		return err
	}
	mapped, err := c.proc.mapped()
	r.all, r.mapped = append(r.all, c.cost.rss), append(r.mapped, mapped)
	return err
}

// runMemory measures agents while Consul's data changes, and writes the report to stdout
// and, if all went well, to the file out.
func (b *bench) runMemory(ctx context.Context, d time.Duration, stdout io.Writer, out string) error {
	defer os.RemoveAll(b.dir)
	r, err := b.measureMemory(ctx, d)
	if err != nil {
		return err
	}
	text := r.markdown()
	if _, err := io.WriteString(stdout, text); err != nil || out == "" {
		return err
	}
	return os.WriteFile(out, []byte(text), 0o644)
}

// measureMemory runs an agent with five services and five templates, and one with
// 10,000 keys, for d.
func (b *bench) measureMemory(ctx context.Context, d time.Duration) (r memoryReport, err error) {
	r.Machine = describe(ctx, b.programs, b.dir)
	c, err := b.startConsul(ctx, 0)
	if err != nil {
		return r, err
	}
	defer c.proc.kill()
	m := &memoryRun{
		consul: c, keys: newKeySpace(memoryKeys)("large", c).(*keySpace), own: newKeySpace(memoryTemplates)("small", c).(*keySpace),
		services: newServiceSpace(memoryServices)("pool", c).(*serviceSpace),
	}
	for _, s := range []space{m.keys, m.own, m.services} {
		if err := s.fill(ctx); err != nil {
			return r, err
		}
	}
	small, err := m.startSmall(ctx, b)
	if err != nil {
		return r, err
	}
	defer small.close()
	large, err := m.startLarge(ctx, b)
	if err != nil {
		return r, err
	}
	defer large.close()
	begun := time.Now()
	g, running := errgroup.WithContext(ctx)
	running, stop := context.WithTimeout(running, d)
	defer stop()
	g.Go(func() error { return m.churn(ctx, running) })
	g.Go(func() error {
		for ; running.Err() == nil; sleep(running, memoryEach) {
			for agent, memory := range map[*contender]*resident{small: &r.small, large: &r.large} {
				if err := memory.add(agent); err != nil {
					return err
				}
				agent.seen.drain()
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return r, err
	}
	r.Took, r.changes = time.Since(begun), m.changes
	for agent, s := range map[*contender]*keySpace{small: m.own, large: m.keys} { // they still follow Consul
		_, err := agent.change(ctx, map[string]string{file(0): "value = changed-0\n"}, func() error { return changeKey(ctx, s, 0, 0) })
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// memoryRun is what changes while memory is measured.
type memoryRun struct {
	consul    *consul
	keys, own *keySpace
	services  *serviceSpace
	changes   int
}

// startSmall starts an agent that publishes services with checks, and renders a key and, in all
// but its first template, a service.
func (m *memoryRun) startSmall(ctx context.Context, b *bench) (*contender, error) {
	agent, err := b.newContender(jorc, m.consul)
	if err != nil {
		return nil, err
	}
	var extra strings.Builder
	for i := range memoryServices {
		fmt.Fprintf(&extra, "service \"own-%d\" {\n  port = %d\n  check {\n    tcp = %q\n    interval = \"5s\"\n  }\n}\n", i, 8000+i, m.consul.http)
	}
	templates, want := make([]string, memoryTemplates), map[string]string{}
	for i := range templates {
		templates[i], want[file(i)] = m.own.template(i), m.own.content(i)
		if i > 0 { // the first file tells at the end whether the agent still follows Consul
			templates[i] += m.services.template(i)
			want[file(i)] += m.services.content(i)
		}
	}
	return agent, agent.run(ctx, b, templates, extra.String(), want)
}

// startLarge starts an agent with a template for each of the 10,000 keys.
func (m *memoryRun) startLarge(ctx context.Context, b *bench) (*contender, error) {
	agent, err := b.newContender(jorc, m.consul)
	if err != nil {
		return nil, err
	}
	templates, want := make([]string, memoryKeys), map[string]string{}
	for i := range templates {
		templates[i], want[file(i)] = m.keys.template(i), m.keys.content(i)
	}
	return agent, agent.run(ctx, b, templates, "", want)
}

// churn changes a key of each agent and a check each second, and each minute the port of
// an instance, until running ends.
func (m *memoryRun) churn(ctx, running context.Context) error {
	for n := 1; running.Err() == nil; n++ {
		sleep(running, time.Second)
		i := 1 + n%(memoryTemplates-1)
		for _, change := range []func() error{
			func() error { return changeKey(ctx, m.own, i, n) },
			func() error { return changeKey(ctx, m.keys, 1+n%(memoryKeys-1), n) },
			func() error { return flipCheck(ctx, m.services, i, n) },
		} {
			if err := change(); err != nil {
				return err
			}
			m.changes++
		}
		if n%60 == 0 {
			if err := movePort(ctx, m.services, i, n); err != nil {
				return err
			}
			m.changes++
		}
	}
	return nil
}

func (r *memoryReport) markdown() string {
	var b strings.Builder
	b.WriteString("# Memory\n\nWritten by `make bench-memory`; do not edit.\n\n")
	b.WriteString(r.Machine.markdown())
	fmt.Fprintf(&b, "Two agents of one Consul for %s, with %d changes: each second a key of each agent and a check, each minute the port of an\n"+
		"instance. RSS is what the kernel says of the process, read each %s. Its mapped part is pages of the program's file, which the kernel\n"+
		"can drop at any time and read again; the rest is heap, stacks and the runtime's own data.\n\n", r.Took.Round(time.Second), r.changes, memoryEach)
	rows := [][]string{{"agent", "unit", "RSS, p50", "of it mapped", "highest", "target", "met", "last quarter / second", "target", "met"}}
	for _, a := range []struct {
		what string
		resident
		limit float64
	}{
		{fmt.Sprintf("%d services, %d templates", memoryServices, memoryTemplates), r.small, maxSmallMB},
		{fmt.Sprintf("%d keys, a template each", memoryKeys), r.large, maxLargeMB},
	} {
		ratio := a.all.quarter(3) / a.all.quarter(1)
		rows = append(rows, []string{
			a.what, "MB", number(a.all.median()), number(a.mapped.median()), number(a.all.most()), "p50 ≤ " + number(a.limit), yesNo(a.all.median() <= a.limit),
			number(ratio), "≤ " + number(maxRSSGrowth), yesNo(ratio <= maxRSSGrowth),
		})
	}
	b.WriteString(layout(rows))
	b.WriteString("\n## The curve\n\nThe mean of each twenty-fourth of the run.\n\n")
	curve := [][]string{{"from, min", "small agent, MB", "of it mapped", "large agent, MB", "of it mapped"}}
	const parts = 24
	for i := range parts {
		curve = append(curve, []string{
			fmt.Sprintf("%.0f", r.Took.Minutes()*float64(i)/parts), number(r.small.all.part(i, parts)), number(r.small.mapped.part(i, parts)),
			number(r.large.all.part(i, parts)), number(r.large.mapped.part(i, parts)),
		})
	}
	b.WriteString(layout(curve))
	b.WriteString("\nReproduce with `make bench-memory`, which takes two hours; `go run ./bench -memory 5m` takes five minutes.\n")
	return b.String()
}

// quarter is the mean of the nth quarter of the samples, from 0.
func (s samples) quarter(n int) float64 { return s.part(n, 4) }

// part is the mean of the nth of so many parts of the samples; a part has one at least.
func (s samples) part(n, of int) float64 {
	begin := n * len(s) / of
	end := max((n+1)*len(s)/of, begin+1)
	sum := 0.0
	for _, v := range s[begin:end] {
		sum += v
	}
	return sum / float64(end-begin)
}

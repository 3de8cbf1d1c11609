package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/rollout"
)

// policyFlags say how a version reaches the members.
func policyFlags() []cli.Flag {
	const category = "Policy"
	duration := func(name, usage string) cli.Flag {
		return &cli.DurationFlag{Name: name, Usage: usage, DefaultText: "none", Category: category}
	}
	text := func(name, usage, standard string) cli.Flag {
		return &cli.StringFlag{Name: name, Usage: usage, DefaultText: standard, Category: category}
	}
	return []cli.Flag{
		&cli.IntFlag{Name: "canary", Usage: "`N` members come first, on their own", DefaultText: "none", Category: category},
		text("batches", "how many members are admitted in total, `STEP` by step, such as 1,10%,100%", "100%"),
		text("max-parallel", "at most `N` members or P% of them out of service at the same time", "25% when there is a policy"),
		&cli.IntFlag{Name: "max-failures", Usage: "`N` members may fail", DefaultText: "0", Category: category},
		duration("min-healthy", "a node must be healthy for `D` before the next starts; a canary then needs no promotion"),
		duration("node-deadline", "a node that takes longer than `D` has failed"),
		duration("progress-deadline", "pause if no member finished for `D`"),
		&cli.BoolFlag{Name: "zone-by-zone", Usage: "finish one zone before the next", DisableDefaultText: true, Category: category},
		text("order", "finish one `ROLE` before the next, such as db=1,web; =N is a limit of its own, =0 excludes the role", "none"),
		text("on-failure", "`WHAT` to do when too many failed: pause or rollback", "pause"),
		&cli.StringSliceFlag{
			Name: "window", Category: category, DefaultText: "always",
			Usage: "times when nodes may begin: `SPEC` is such as \"Mon-Fri 22:00-06:00 Europe/Berlin\"; separate several by ;; \"always\" for none",
		},
	}
}

// policyOf is what the policy flags of c change; nil without such flags.
func policyOf(c *cli.Context) (func(*rollout.Policy), error) {
	var changes []func(*rollout.Policy)
	add := func(name string, change func(*rollout.Policy)) {
		if c.IsSet(name) {
			changes = append(changes, change)
		}
	}
	duration := func(name string, field func(*rollout.Policy) *rollout.Duration) {
		add(name, func(p *rollout.Policy) { *field(p) = rollout.Duration(c.Duration(name).Round(time.Millisecond)) })
	}
	add("canary", func(p *rollout.Policy) { p.Canary = c.Int("canary") })
	add("max-failures", func(p *rollout.Policy) { p.MaxFailures = c.Int("max-failures") })
	add("zone-by-zone", func(p *rollout.Policy) { p.ZoneByZone = c.Bool("zone-by-zone") })
	add("on-failure", func(p *rollout.Policy) { p.OnFailure = c.String("on-failure") })
	duration("min-healthy", func(p *rollout.Policy) *rollout.Duration { return &p.MinHealthy })
	duration("node-deadline", func(p *rollout.Policy) *rollout.Duration { return &p.NodeDeadline })
	duration("progress-deadline", func(p *rollout.Policy) *rollout.Duration { return &p.ProgressDeadline })
	if err := listsOf(c, add); err != nil {
		return nil, err
	}
	if len(changes) == 0 {
		return nil, nil //nolint:nilnil // nil: no policy
	}
	return func(p *rollout.Policy) {
		for _, change := range changes {
			change(p)
		}
	}, nil
}

// listsOf adds the flags whose text has to be read first.
func listsOf(c *cli.Context, add func(string, func(*rollout.Policy))) error {
	if c.IsSet("batches") {
		batches, err := rollout.ParseBatches(c.String("batches"))
		if err != nil {
			return usagef(c, "--batches: %v", err)
		}
		add("batches", func(p *rollout.Policy) { p.Batches = batches })
	}
	if c.IsSet("max-parallel") {
		amount, err := rollout.ParseAmount(c.String("max-parallel"))
		if err != nil {
			return usagef(c, "--max-parallel: %v", err)
		}
		add("max-parallel", func(p *rollout.Policy) { p.MaxParallel = amount })
	}
	if c.IsSet("order") {
		order, err := rollout.ParseOrder(c.String("order"))
		if err != nil {
			return usagef(c, "--order: %v", err)
		}
		add("order", func(p *rollout.Policy) { p.Order = order })
	}
	var windows []rollout.Window
	for _, text := range c.StringSlice("window") {
		if text == "always" {
			continue
		}
		more, err := rollout.ParseWindows(text)
		if err != nil {
			return usagef(c, "--window: %v", err)
		}
		windows = append(windows, more...)
	}
	add("window", func(p *rollout.Policy) { p.Windows = windows })
	return nil
}

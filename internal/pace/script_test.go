package pace_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/jorc/jorc/internal/pace"
)

var update = flag.Bool("update", false, "write what the scripts decide into testdata")

// TestScripts carries out the scripts of testdata: what happens in a fleet, and what the plans
// then decide. The commands are in testdata/README.md. In each step the orchestrator plans once all its
// commands are carried out, and again until nothing more is decided.
func TestScripts(t *testing.T) {
	t.Parallel()
	if *update {
		if err := flag.Set("rewrite", "true"); err != nil {
			t.Fatal(err)
		}
	}
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("there are no scripts: ", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			if text, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(text), "# ") {
				t.Fatal("the first line of a script is the rule that it shows, as a comment: ", err)
			}
			w := newWorld(t)
			datadriven.RunTest(t, path, w.step)
		})
	}
}

// step carries out the commands of one step, and returns what was decided.
func (w *world) step(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	w.t, w.log = t, nil
	carryOut := func(cmd string, args []datadriven.CmdArg, err error) {
		if err == nil {
			err = w.command(cmd, args)
		}
		if err != nil {
			t.Errorf("%s: %s: %v", d.Pos, cmd, err)
		}
	}
	carryOut(d.Cmd, d.CmdArgs, nil)
	for line := range strings.Lines(d.Input) {
		carryOut(datadriven.ParseLine(line))
	}
	w.plan()
	if len(w.log) == 0 {
		return "nothing\n"
	}
	return strings.Join(w.log, "\n") + "\n"
}

// arguments are those of one command: words, and values by key.
type arguments struct {
	words  []string
	values map[string][]string
	used   map[string]bool
	err    error
}

func newArguments(all []datadriven.CmdArg) *arguments {
	a := &arguments{values: map[string][]string{}, used: map[string]bool{}}
	for _, arg := range all {
		if len(arg.Vals) == 0 {
			a.words = append(a.words, arg.Key)
		} else {
			a.values[arg.Key] = arg.Vals
		}
	}
	return a
}

// word takes the next word; empty: no word is left.
func (a *arguments) word() (word string) {
	if len(a.words) > 0 {
		word, a.words = a.words[0], a.words[1:]
	}
	return word
}

// flag takes a word if it is there.
func (a *arguments) flag(name string) bool {
	i := slices.Index(a.words, name)
	if i >= 0 {
		a.words = slices.Delete(a.words, i, i+1)
	}
	return i >= 0
}

func (a *arguments) list(key string) []string { a.used[key] = true; return a.values[key] }
func (a *arguments) text(key string) string   { return strings.Join(a.list(key), ", ") }

// read takes a value, if it is there, with a function that reads it.
func read[T any](a *arguments, key, text string, parse func(string) (T, error)) (v T) {
	if a.used[key] = true; text != "" {
		var err error
		v, err = parse(text)
		a.err = errors.Join(a.err, err)
	}
	return v
}

func (a *arguments) number(key string) int { return read(a, key, a.text(key), strconv.Atoi) }

func (a *arguments) duration(key string) pace.Duration {
	return pace.Duration(read(a, key, a.text(key), time.ParseDuration))
}

func (a *arguments) amount(key string) pace.Amount {
	return read(a, key, a.text(key), pace.ParseAmount)
}

// rest returns what no one has taken, as an error.
func (a *arguments) rest() error {
	unknown := slices.DeleteFunc(slices.Sorted(maps.Keys(a.values)), func(key string) bool { return a.used[key] })
	if unknown = append(unknown, a.words...); len(unknown) > 0 {
		return errors.Join(a.err, fmt.Errorf("%q is not understood", unknown))
	}
	return a.err
}

// policy is one as the flags of 'jorc update trigger' have it.
func (a *arguments) policy() pace.Policy {
	p := pace.Policy{
		Canary: a.number("canary"), MaxParallel: a.amount("max-parallel"), MaxFailures: a.number("max-failures"),
		MinHealthy: a.duration("min-healthy"), NodeDeadline: a.duration("node-deadline"), ProgressDeadline: a.duration("progress-deadline"), Bake: a.duration("bake"),
		Batches: read(a, "batches", strings.Join(a.values["batches"], ","), pace.ParseBatches),
		Order:   read(a, "order", strings.Join(a.values["order"], ","), pace.ParseOrder),
		Windows: read(a, "window", strings.Join(a.values["window"], ","), pace.ParseWindows),
		Gate:    pace.Gate{Workflow: a.text("gate"), Samples: a.number("gate-samples"), Interval: a.duration("gate-interval"), Timeout: a.duration("gate-timeout")},

		OnFailure: a.text("on-failure"), ApproveEach: a.flag("approve-each"), ZoneByZone: a.flag("zone-by-zone"),
	}
	p = p.Complete()
	a.err = errors.Join(a.err, p.Validate())
	return p
}

// names are the hosts that a word names: web-1, or web-1..3.
func names(word string) (all []string) {
	from, last, ranged := strings.Cut(word, "..")
	i := strings.LastIndex(from, "-")
	first, errFirst := strconv.Atoi(from[i+1:])
	end, errEnd := strconv.Atoi(last)
	if !ranged || errFirst != nil || errEnd != nil {
		return []string{word}
	}
	for n := first; n <= end; n++ {
		all = append(all, fmt.Sprintf("%s-%d", from[:i], n))
	}
	return all
}

// command carries out one command of a script.
func (w *world) command(cmd string, args []datadriven.CmdArg) error {
	a := newArguments(args)
	err := w.fleet(cmd, a)
	if errors.Is(err, errUnknown) {
		err = w.operator(cmd, a)
	}
	if errors.Is(err, errUnknown) {
		err = w.answers(cmd, a)
	}
	return errors.Join(err, a.rest())
}

var errUnknown = errors.New("there is no such command")

// fleet is what happens to the fleet and the clock.
func (w *world) fleet(cmd string, a *arguments) error {
	switch cmd {
	case "hosts":
		return w.addHosts(a)
	case "tick":
		d, err := time.ParseDuration(a.word())
		w.pass(d)
		return err
	case "crash": // of the orchestrator; another takes over
		w.crash()
		return nil
	case "status":
		w.status()
		return nil
	case "why":
		return w.why(a.word(), a.word())
	}
	turn := map[string]func(*worldHost){
		"down":      func(h *worldHost) { h.Up, h.DownSince = false, w.now },
		"up":        func(h *worldHost) { h.Up, h.DownSince = true, time.Time{} },
		"critical":  func(h *worldHost) { h.critical = true },
		"passing":   func(h *worldHost) { h.critical = false },
		"drain":     func(h *worldHost) { h.drained = true },
		"undrain":   func(h *worldHost) { h.drained = false },
		"hold":      func(h *worldHost) { h.Hold = "by ann" },
		"release":   func(h *worldHost) { h.Hold = "" },
		"gone":      func(h *worldHost) { h.Up, h.Gone, h.left = false, true, true }, // it left the catalog a day ago
		"converges": func(h *worldHost) { h.works = true },                           // without a grant
		"converged": func(h *worldHost) { h.works = false },
		"holder": func(h *worldHost) { // of the orchestrator's lock
			for _, o := range w.hosts {
				o.Holder = false
			}
			h.Holder = true
		},
	}[cmd]
	if turn == nil {
		return errUnknown
	}
	for word := a.word(); word != ""; word = a.word() {
		for _, node := range names(word) {
			h := w.hosts[node]
			if h == nil {
				return fmt.Errorf("%w: %s", errHost, node)
			}
			turn(h)
		}
	}
	return nil
}

// addHosts: "hosts web-1..3 zones=(a,b) roles=(web)"; zones go round.
func (w *world) addHosts(a *arguments) error {
	zones, roles, has := a.list("zones"), a.list("roles"), a.list("has")
	lone := map[string][]string{"server": {pace.ConsulServer}, "candidate": {pace.Candidate}, "both": {pace.ConsulServer, pace.Candidate}}[a.text("lone")]
	i := 0
	for word := a.word(); word != ""; word = a.word() {
		for _, node := range names(word) {
			h := w.join(node, "", roles...)
			if h.Lone = lone; len(zones) > 0 {
				h.Zone = zones[i%len(zones)]
			}
			for _, tag := range has {
				h.has[tag] = w.now.Add(-24 * time.Hour)
			}
			i++
		}
	}
	return nil
}

// operator is what people ask for.
func (w *world) operator(cmd string, a *arguments) error {
	switch cmd {
	case "version": // version v2 previous=v1 canary=1 …
		return w.beginOf("version", a.word(), a)
	case "files": // files edge content=A …
		return w.beginOf("files."+a.word(), a.text("content"), a)
	case "run", "lease":
		name := a.word()
		return w.beginOf(cmd+"."+name, name, a)
	case "budget": // budget max-out=2 zones=1 web=1 …
		w.budget = &pace.Budget{MaxOut: a.amount("max-out"), Zones: a.number("zones")}
		for role := range maps.Keys(a.values) {
			if !a.used[role] {
				w.budget.Roles = map[string]pace.Amount{role: a.amount(role)}
			}
		}
		return errors.Join(a.err, w.budget.Check())
	case "no-budget":
		w.budget = nil
	case "freeze": // freeze 1h roles=(db), or freeze weekly=(Fri 16:00-Mon 06:00)
		f := pace.Freeze{ID: "f" + strconv.Itoa(len(w.freezes)+1), Roles: a.list("roles"), Reason: a.text("reason"), From: w.now}
		if weekly := read(a, "weekly", a.text("weekly"), pace.ParseWindow); a.text("weekly") != "" {
			f.Weekly, f.From = &weekly, time.Time{}
		} else {
			f.To = w.now.Add(read(a, "for", a.word(), time.ParseDuration))
		}
		var err error
		w.freezes, err = w.freezes.Add(f, w.now)
		return errors.Join(a.err, err)
	case "thaw":
		w.freezes = nil
	case "halt": // what stops the cluster: a pause, a control that cannot be read
		w.halted = a.text("reason")
	case "unhalt":
		w.halted = ""
	case "hold-all", "release-all":
		w.allHeld = cmd == "hold-all"
	case "restored": // Consul's KV
		w.quiet = w.now.Add(time.Minute)
		w.crash()
	default:
		return w.ofChange(cmd, a)
	}
	return nil
}

// ofChange is what people ask of one change.
func (w *world) ofChange(cmd string, a *arguments) error {
	turn := map[string]func(*worldChange){
		"pause":    func(c *worldChange) { c.Stopped = "it was paused by ann" },
		"resume":   w.resume,
		"approve":  w.promote,
		"abort":    func(c *worldChange) { c.Phase, c.Group, c.Gate = pace.Aborted, nil, nil },
		"rollback": func(c *worldChange) { w.takeBack(c, pace.Next{Restore: "ann asked for it"}) },
		"policy":   func(c *worldChange) { c.Policy = a.policy() },
		"damage":   func(c *worldChange) { c.Policy.MaxFailures = -1 },
		"gate": func(c *worldChange) { // what is known of the run that it asked for
			if c.Gate == nil || c.Gate.Run == "" {
				a.err = errors.New("its gate asks nothing")
				return
			}
			answer := map[string]pace.GateAnswer{"yes": pace.GateYes, "no": pace.GateNo, "unanswered": pace.GateUnanswered}[a.word()]
			c.Asked = &pace.GateRun{ID: c.Gate.Run, Answer: answer, Line: a.text("line")}
		},
	}[cmd]
	if turn == nil {
		return errUnknown
	}
	id := a.word()
	c := w.changes[id]
	if c == nil {
		return fmt.Errorf("%w: %s", errChange, id)
	}
	turn(c)
	w.void(id)
	return nil
}

// reask has a gate that failed ask again.
func (w *world) reask(c *worldChange) {
	if c.Gate != nil && c.Gate.Failed {
		g := pace.NewGate(w.now)
		g.Baked = c.Gate.Baked
		c.Gate = &g
	}
}

// beginOf begins a change with the arguments that all kinds have.
func (w *world) beginOf(id, tag string, a *arguments) error {
	kind, _, _ := strings.Cut(id, ".")
	p := a.policy()
	if kind != "version" && p.Plain() {
		p.MaxParallel = pace.Amount{N: 100, Percent: true}
	}
	var nodes []string
	for _, word := range a.list("on") {
		nodes = append(nodes, names(word)...)
	}
	if kind == "lease" {
		nodes = []string{tag}
	}
	slices.Sort(nodes)
	quiet := a.flag("harmless") // it does not disturb
	unfrozen, over := a.flag("during-freeze"), a.flag("over-budget")
	previous := a.text("previous")
	if kind == "run" && len(a.values["max-failures"]) == 0 {
		p.MaxFailures = pace.MostMembers
	}
	if a.err != nil {
		return a.err
	}
	w.begin(id, tag, func(c *worldChange) {
		c.Policy, c.previous, c.nodes, c.Unfrozen = p, previous, nodes, unfrozen
		c.OverBudget, c.Lease = over, kind == "lease"
		c.Disturbs, c.Final = !quiet, kind == "run" || kind == "lease"
	})
	return nil
}

// answers is what hosts answer: "accept web-1", or "accept web-1 run.patch" if it has several grants.
func (w *world) answers(cmd string, a *arguments) error {
	turn := map[string]func(node, change string) error{
		"accept": w.accept, "arrive": w.arrive, "done": w.done, "strand": w.strand, "give-up": w.giveUp,
		"decline": func(node, change string) error { return w.decline(node, change, a.text("reason")) },
		"fail":    func(node, change string) error { return w.fail(node, change, a.text("reason")) },
		"ready": func(node, change string) error {
			_, _, p, err := w.one(node, change, func(p *pace.Part) bool { return p.Declined })
			if err == nil {
				p.Ready = true
			}
			return err
		},
		"apart": func(node, change string) error { // the kind itself keeps the host back
			w.hosts[node].apart[change] = a.text("reason")
			return nil
		},
		"grant": func(node, change string) error { // one that an operator wrote, or of a change that does not exist
			h := w.hosts[node]
			h.Parts = append(h.Parts, pace.Part{Change: change, Answer: pace.Accepted, Tag: a.text("tag"), Accepted: w.now})
			return nil
		},
	}[cmd]
	if turn == nil {
		return errUnknown
	}
	var nodes []string
	for len(a.words) > 0 && (w.hosts[names(a.words[0])[0]] != nil) {
		nodes = append(nodes, names(a.word())...)
	}
	change := a.word()
	if len(nodes) == 0 {
		return errHost
	}
	for _, node := range nodes {
		if err := turn(node, change); err != nil {
			return fmt.Errorf("%s: %w", node, err)
		}
	}
	return nil
}

// why says why a host is not offered its part of a change, or of all.
func (w *world) why(node, change string) error {
	w.plan()
	ids := slices.Sorted(maps.Keys(w.changes))
	if change != "" {
		ids = []string{change}
	}
	s := w.situation()
	for _, id := range ids {
		if why := pace.Explain(s, id, node, w.now); why.None() {
			w.say("%s of %s: it is offered a grant", node, id)
		} else {
			w.say("%s of %s: %s: %s", node, id, why.Code, why.Text("the change"))
		}
	}
	return nil
}

// status says who is out of service, and how far each change is.
func (w *world) status() {
	w.plan()
	s := w.situation()
	for _, c := range s.Changes {
		v := pace.NewSurvey(s, c, w.now)
		n := v.Now
		said := fmt.Sprintf("%s: %s", w.changes[c.ID].name, v.StateText())
		for _, part := range []struct {
			n    int
			what string
		}{{n.Done, "done"}, {n.Working, "working"}, {n.Failed, "failed"}, {n.Down, "down"}, {n.Held, "held"}, {n.GivenUp, "given up"}, {n.Waiting, "waiting"}} {
			if part.n > 0 {
				said += fmt.Sprintf(", %d %s", part.n, part.what)
			}
		}
		if waits := v.Waits(); len(waits) > 0 {
			said += "; waits for " + strings.Join(waits, "; ")
		}
		w.say("%s", said)
	}
	for _, h := range s.Hosts {
		if h.Out != "" {
			said := h.Out
			switch {
			case h.GivenUp:
				said += ", given up"
			case h.Gone:
				said += ", gone"
			}
			w.say("out: %s: %s", h.Node, said)
		}
	}
	for _, u := range s.Places.Uses() {
		w.say("%s", u.Limit)
	}
}

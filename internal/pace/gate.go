package pace

import (
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/text"
)

// Gate is the workflow that is asked after each step of a rollout. The zero Gate
// asks nothing.
type Gate struct {
	// Workflow runs on a manager. It passes with exit code 0, and asks for another
	// attempt with jorc_not_yet.
	Workflow string `json:"workflow,omitempty"`
	// Samples is how many times in a row it must pass, Interval the time between them.
	Samples  int      `json:"samples,omitempty"`
	Interval Duration `json:"interval,omitempty"`
	// Timeout is how long one sample may take before the rollout is paused.
	Timeout Duration `json:"timeout,omitempty"`
}

// Defaults of a Gate, and the most samples.
const (
	defaultGateInterval = Duration(time.Minute)
	defaultGateTimeout  = Duration(time.Hour)
	mostSamples         = 1000
)

func (g Gate) complete() Gate {
	if g.Workflow == "" {
		return g
	}
	if g.Samples == 0 {
		g.Samples = 1
	}
	if g.Interval == 0 && g.Samples > 1 {
		g.Interval = defaultGateInterval
	}
	if g.Timeout == 0 {
		g.Timeout = defaultGateTimeout
	}
	return g
}

func (g Gate) validate() error {
	switch {
	case g.Workflow == "" && g != Gate{}:
		return fmt.Errorf("%w: samples, an interval or a timeout without a gate: name its workflow, or leave them out", ErrPolicy)
	case g.Workflow == "":
		return nil
	case g.Samples < 0 || g.Samples > mostSamples:
		return fmt.Errorf("%w: %d samples of the gate: give a number from 1 to %d", ErrPolicy, g.Samples, mostSamples)
	case g.Interval < 0 || g.Timeout < 0:
		return fmt.Errorf("%w: a duration of the gate below zero: leave it out for the default", ErrPolicy)
	}
	if err := text.CheckName(g.Workflow); err != nil {
		return fmt.Errorf("%w: gate: workflow %w", ErrPolicy, err)
	}
	return nil
}

// WithGateDefaults returns the policy with the defaults of its gate.
func (p Policy) WithGateDefaults() Policy {
	p.Gate = p.Gate.complete()
	return p
}

// Gates reports whether a step that is done has to pass something by itself.
func (p Policy) Gates() bool { return p.Bake > 0 || p.Gate.Workflow != "" }

// Gated reports whether something comes between two steps.
func (p Policy) Gated() bool { return p.Gates() || p.ApproveEach }

// SameGates reports whether both let the same steps pass.
func (p Policy) SameGates(o Policy) bool {
	return p.Bake == o.Bake && p.ApproveEach == o.ApproveEach && p.Gate == o.Gate
}

// WithoutGates is the policy of which no step has to pass anything.
func (p Policy) WithoutGates() Policy {
	p.Bake, p.ApproveEach, p.Gate = 0, false, Gate{}
	return p
}

// Ungated is the policy without what a rollback does without: gates and windows.
func (p Policy) Ungated() Policy {
	p = p.WithoutGates()
	p.Windows = nil
	return p
}

// UngatedText names what a rollback does without, as the flags set it; empty: nothing.
func (p Policy) UngatedText() string {
	var parts []string
	if p.Gated() {
		parts = append(parts, p.GatesString())
	}
	for _, w := range p.Windows {
		parts = append(parts, fmt.Sprintf("window %q", w))
	}
	if p.Canary > 0 && p.MinHealthy == 0 && !p.ApproveEach {
		parts = append(parts, "consent after the canary")
	}
	return strings.Join(parts, ", ")
}

// GateProgress is how far the gate of a step is that is done.
type GateProgress struct {
	Since time.Time `json:"since"`           // the step is done
	Baked bool      `json:"baked,omitempty"` // it has stayed so for as long as the policy says
	// Run is the run that is asked now, Asked since when; Next is when the next sample
	// is due.
	Run     string    `json:"run,omitempty"`
	Asked   time.Time `json:"asked,omitzero"`
	Next    time.Time `json:"next,omitzero"`
	Samples int       `json:"samples,omitempty"` // passed in a row
	Answer  string    `json:"answer,omitempty"`  // the last line of the last run, or what it waits for
	// Passed: only consent may be missing. Failed: a resume begins the gate again.
	Passed bool `json:"passed,omitempty"`
	Failed bool `json:"failed,omitempty"`
}

// Approval is an operator's consent to continue after a step.
type Approval struct {
	Step int       `json:"step"`
	By   string    `json:"by,omitempty"`
	At   time.Time `json:"at"`
}

// PassedGate is the gate that the rollout passed last.
type PassedGate struct {
	Step   string    `json:"step"` // the one that was done, in words
	At     time.Time `json:"at"`
	Answer string    `json:"answer,omitempty"`
	By     string    `json:"by,omitempty"` // who approved it
}

// Exact is a time from which a gate counts: to a millisecond, so that nothing ends early.
func Exact(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// GateAnswer is the result of a run that a gate asked for.
type GateAnswer string

// Values of GateAnswer.
const (
	GateAsking     GateAnswer = "" // no result yet
	GateYes        GateAnswer = "yes"
	GateNo         GateAnswer = "no"
	GateUnanswered GateAnswer = "unanswered" // it could not be asked
)

// GateRun is what is known of the run that a gate asked for.
type GateRun struct {
	ID     string
	Answer GateAnswer
	Line   string // what it printed last, why it could not be asked, or what it waits for
}

// Names of the params of a gate's run.
const (
	ParamGateVersion   = "gate/version"
	ParamGatePrevious  = "gate/previous"
	ParamGateStage     = "gate/stage"      // of a stage's gate, which has neither version
	ParamGateStep      = "gate/step"       // in words: canary, batch 2 of 3
	ParamGateSample    = "gate/sample"     // from 1
	ParamGateHosts     = "gate/hosts"      // that the step admitted and that run the version, sorted
	ParamGateHostCount = "gate/host-count" // all of them
)

// mostLine bounds what is taken over of a gate's answer, in bytes.
const mostLine = 200

// mostGateHosts bounds ParamGateHosts.
const mostGateHosts = 1000

// GateFacts are the facts that a gate's run gets. Stage is empty for a rollout.
type GateFacts struct {
	Version, Previous, Stage, Step string
	Sample                         int
	Hosts                          []string
	Count                          int
}

// Bounded returns the facts with their count, and the first hosts in order.
func (f GateFacts) Bounded() GateFacts {
	f.Count = len(f.Hosts)
	slices.Sort(f.Hosts)
	f.Hosts = f.Hosts[:min(len(f.Hosts), mostGateHosts)]
	return f
}

// GateRunID is the id of the ask-th run that gates of a change ask for, after step.
func GateRunID(change string, started time.Time, step, ask int) string {
	clean := func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' {
			return c
		}
		return '-'
	}
	name := strings.Map(clean, change)
	if len(name) > mostGateName {
		name = fmt.Sprintf("%s-%08x", name[:mostGateName-9], crc32.ChecksumIEEE([]byte(change)))
	}
	return fmt.Sprintf("%s%s-%s-%d-%d", GateRunPrefix, name, strconv.FormatInt(started.Unix(), 36), step, ask)
}

// mostGateName bounds the name of a change in the id of a run.
const mostGateName = 40

// GateRunPrefix begins the ids of all runs of gates.
const GateRunPrefix = "gate-"

// NewGate is the gate of a step that is done now.
func NewGate(now time.Time) GateProgress { return GateProgress{Since: Exact(now)} }

// GateText is what a step that is done has to pass by itself.
func (p Policy) GateText() string {
	var parts []string
	if p.Bake > 0 {
		parts = append(parts, "it bakes for "+p.Bake.String())
	}
	if p.Gate.Workflow != "" {
		parts = append(parts, fmt.Sprintf("gate %q is asked", p.Gate.Workflow))
	}
	return strings.Join(parts, ", then ")
}

// Baked returns the gate, baked if its time is over. sound: no host of the step is
// out of service.
func (p Policy) Baked(g GateProgress, sound bool, now time.Time) GateProgress {
	g.Baked = g.Baked || sound && !now.Before(g.Since.Add(time.Duration(p.Bake)))
	return g
}

// Sampled takes in the answer of the gate's workflow, or asks it: then its Run
// becomes id, unless nothing may begin now. known is what is known of its run, or
// nil. The gate has passed with the last sample, and failed if the workflow said no,
// or could not be asked (GateFailure).
func (p Policy) Sampled(g GateProgress, known *GateRun, id string, halted bool, now time.Time) GateProgress {
	if p.Gate.Workflow == "" {
		g.Passed = true
		return g
	}
	if g.Run == "" {
		if halted || now.Before(g.Next) {
			return g
		}
		g.Run, g.Asked, g.Next = id, Exact(now), time.Time{}
	}
	answer := GateAsking
	if known != nil && known.ID == g.Run {
		answer, g.Answer = known.Answer, text.Line(known.Line, mostLine)
	}
	late := !now.Before(g.Asked.Add(time.Duration(p.Gate.Timeout)))
	switch {
	case answer == GateYes:
		g.Samples++
		g.Run, g.Asked, g.Next = "", time.Time{}, Exact(now).Add(time.Duration(p.Gate.Interval))
	case answer == GateNo || answer == GateUnanswered || late:
		g.Failed = true
	}
	g.Passed = g.Samples >= p.Gate.Samples
	return g
}

// GateFailure returns why a gate failed after a step, given what is known of its
// run. said: its workflow said no; otherwise it could not be asked, and resume is the
// command that asks again.
func (p Policy) GateFailure(g GateProgress, known *GateRun, step, resume string) (why string, said bool) {
	what := fmt.Sprintf("gate %q of %s", p.Gate.Workflow, step)
	again := fmt.Sprintf(" (run %s); '%s' asks again", g.Run, resume)
	switch own := known != nil && known.ID == g.Run; {
	case own && known.Answer == GateNo:
		return what + " failed: " + g.Answer + " (run " + g.Run + ")", true
	case own && known.Answer == GateUnanswered:
		return what + " cannot be asked: " + g.Answer + again, false
	case g.Answer != "":
		return what + " cannot be asked: it did not answer for " + p.Gate.Timeout.String() + ": " + g.Answer + again, false
	}
	return what + " cannot be asked: it did not answer for " + p.Gate.Timeout.String() + again, false
}

// GateWaits says what a gate after a step waits for; none: it is passed.
func (p Policy) GateWaits(g GateProgress, step string) []string {
	if g.Passed {
		return nil
	}
	if !g.Baked {
		return []string{fmt.Sprintf("%s to bake until %s", step, g.Since.Add(time.Duration(p.Bake)).UTC().Format(time.RFC3339))}
	}
	waits := fmt.Sprintf("gate %q after %s", p.Gate.Workflow, step)
	if p.Gate.Samples > 1 {
		waits += fmt.Sprintf(", %d of %d samples passed", g.Samples, p.Gate.Samples)
	}
	if g.Run == "" && !g.Next.IsZero() {
		waits += ", asked again at " + g.Next.UTC().Format(time.RFC3339)
	}
	if g.Run != "" {
		waits += ", run " + g.Run
	}
	if g.Answer != "" {
		waits += ": " + g.Answer
	}
	return []string{waits}
}

// GateNext returns when a gate changes by time alone; the zero time: it does not.
func (p Policy) GateNext(g GateProgress) time.Time {
	switch {
	case g.Passed || g.Failed:
		return time.Time{}
	case !g.Baked:
		return g.Since.Add(time.Duration(p.Bake))
	case g.Run == "":
		return g.Next
	}
	return g.Asked.Add(time.Duration(p.Gate.Timeout))
}

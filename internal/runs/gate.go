package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/profile"
)

// GateAnswer reads what the run of a gate came to, with two requests, or four while
// it is in progress or has passed. workflow is what the gate asks. It returns what
// Show returns.
func (r *Runs) GateAnswer(ctx context.Context, id, workflow string) (pace.GateRun, error) {
	d, err := r.Show(ctx, id)
	if err != nil {
		return pace.GateRun{}, err
	}
	g := pace.GateRun{ID: id, Answer: pace.GateUnanswered, Line: d.Why}
	if !d.Gate || d.Request.Workflow != workflow {
		g.Line = "another run has its id"
		return g, nil
	}
	last := d.last()
	switch {
	case d.State == Done && last.Task != "":
		g.Answer, g.Line = pace.GateNo, fmt.Sprintf("task %q ended the workflow early", last.Task)
	case d.State == Done:
		tail, err := r.Tail(ctx, id, last.Node)
		if err != nil {
			return g, err
		}
		g.Answer, g.Line = pace.GateYes, lastLine(tail)
	case !d.State.Ended():
		g.Answer, g.Line = pace.GateAsking, cmp.Or(last.Why, d.Why)
		if g.Line == awaitsOrchestrator {
			g.Line = ""
		}
	case d.State == Failed && last.State == Failed && last.Task != "" && answers(last.ExitCode):
		g.Answer, g.Line = pace.GateNo, fmt.Sprintf("task %q on %s: %s", last.Task, last.Node, last.Why)
	case d.State == Cancelled:
		g.Line = strings.TrimSuffix("its run was cancelled "+d.Why, " ")
	}
	return g, nil
}

// answers reports whether a task that failed with an exit code said no. One that
// could not run, ran for too long or was killed said nothing.
func answers(code int) bool {
	const signalled, lastSignal = 128, 64
	killed := code > signalled && code <= signalled+lastSignal
	return code > 0 && !killed && !slices.Contains([]int{command.ExitTimeout, command.ExitCannotRun, command.ExitNotFound}, code)
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}

// GateRequest is what the gate of a rollout or of a stage asks for.
func GateRequest(workflow string, f pace.GateFacts) (Request, error) {
	q := Request{Workflow: workflow, OnManager: true}
	params := map[string]any{
		pace.ParamGateStep: f.Step, pace.ParamGateSample: f.Sample, pace.ParamGateHosts: f.Hosts, pace.ParamGateHostCount: f.Count,
	}
	if f.Stage != "" {
		params[pace.ParamGateStage] = f.Stage
	} else {
		params[pace.ParamGateVersion], params[pace.ParamGatePrevious] = f.Version, f.Previous
	}
	text, err := json.Marshal(params)
	if err == nil {
		q.Params, err = profile.ParseParams(string(text))
	}
	if err != nil {
		return q, fmt.Errorf("params of gate %q: %w", workflow, err)
	}
	return q, q.Check()
}

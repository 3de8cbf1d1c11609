package config

import (
	"strconv"

	"github.com/hashicorp/hcl/v2"
)

func (d *decoder) workflow(b *hcl.Block) Workflow {
	w := Workflow{Name: b.Labels[0]}
	d.claim("workflow", "", w.Name, b.LabelRanges[0], segment)
	tasks, scope := 0, b.LabelRanges[0].String() // unique even when two have one name
	d.body(b.Body, fields{}, nested{"task": {label: "name", read: func(b *hcl.Block) {
		tasks++
		w.Tasks = append(w.Tasks, d.task(b, scope))
	}}})
	if tasks == 0 {
		d.errorf(b.LabelRanges[0], "Empty workflow", "Workflow %q has no task.", w.Name)
	}
	return w
}

func (d *decoder) task(b *hcl.Block, scope string) Task {
	t := Task{Name: b.Labels[0], OkExitCodes: []int{0}}
	d.claim("task", scope, t.Name, b.LabelRanges[0], segment)
	have := d.body(b.Body, fields{
		"command":       command(&t.Command),
		"script":        nonEmpty(&t.Script),
		"user":          nonEmpty(&t.User),
		"dir":           file(&t.Dir),
		"env":           textMap(&t.Env),
		"token_file":    file(&t.TokenFile),
		"timeout":       interval(&t.Timeout),
		"retries":       count(&t.Retries),
		"retry_delay":   duration(&t.RetryDelay),
		"ok_exit_codes": exitCodes(&t.OkExitCodes),
		"idempotent":    boolean(&t.Idempotent),
		"only_if":       program(&t.OnlyIf),
	}, nested{"requires": d.requires(&t.Requires)})
	d.exactlyOne(have, b.LabelRanges[0], "Task "+strconv.Quote(t.Name), "command", "script")
	return t
}

func exitCodes(p *[]int) field {
	return func(d *decoder, a *hcl.Attribute) {
		items, ok := d.elements(a.Expr, a.Name)
		if !ok {
			return
		}
		if len(items) == 0 {
			d.errorf(a.Expr.Range(), "Empty list", "%q must name at least one exit code.", a.Name)
			return
		}
		all := make([]int, 0, len(items))
		for i, item := range items {
			if n, ok := d.whole(item, nth(a.Name, i), 0, 255); ok {
				all = append(all, n)
			}
		}
		*p = all
	}
}

func (d *decoder) trigger(b *hcl.Block) Trigger {
	t := Trigger{Name: b.Labels[0], Pos: position(b.TypeRange)}
	d.claim("trigger", "", t.Name, b.LabelRanges[0], segment)
	label := "Trigger " + strconv.Quote(t.Name)
	have := d.body(b.Body, fields{
		"service":  parsed(&t.Service, serviceName),
		"key":      nonEmpty(&t.Key),
		"prefix":   nonEmpty(&t.Prefix),
		"event":    nonEmpty(&t.Event),
		"workflow": d.workflowName(&t.Workflow, label),
	}, nil)
	d.exactlyOne(have, b.LabelRanges[0], label, "service", "key", "prefix", "event")
	d.required(have, b.LabelRanges[0], label, "workflow")
	return t
}

// workflowName reads the name of a workflow that has to exist in the end.
func (d *decoder) workflowName(p *string, owner string) field {
	return func(d *decoder, a *hcl.Attribute) {
		nonEmpty(p)(d, a)
		if *p != "" {
			d.workflowRefs = append(d.workflowRefs, place{value: *p, rng: a.Expr.Range(), owner: owner})
		}
	}
}

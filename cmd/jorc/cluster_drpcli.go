package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/legacy"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/runs"
)

// drpcliCommand carries out what the function drpcli of setup.tmpl is called with.
func drpcliCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "drpcli", Hidden: true, Usage: "carry out a call of drpcli", Action: env.drpcli,
		Description: "Reads its arguments on stdin, each ended by a zero byte, their number first. What follows them is the value of 'to -'.",
	}
}

func (e *environment) drpcli(c *cli.Context) error {
	call, err := legacy.ReadCall(e.stdin)
	if err != nil {
		return usagef(c, "%v", err)
	}
	switch call.Verb {
	case "profiles add", "profiles set":
		return e.drpcliParam(c, call)
	case "machines meta set":
		return e.drpcliMeta(c, call)
	case "machines workflow":
		return e.drpcliWorkflow(c, call)
	}
	return e.drpcliList(c, call)
}

func (e *environment) drpcliParam(c *cli.Context, call legacy.Call) error {
	v, err := call.ParsedValue()
	if err != nil {
		return usagef(c, "%v", err)
	}
	ref, err := call.Ref()
	if err != nil {
		return usagef(c, "%v", err)
	}
	cl, err := e.cluster(c, call.Name)
	if err != nil {
		return err
	}
	return changeProfile(c, cl, func(ed *profile.Editor, d profile.Document) (profile.Document, error) {
		return ed.Set(d, profile.Scope{}, call.Key, v, ref(d))
	})
}

func (e *environment) drpcliMeta(c *cli.Context, call legacy.Call) error {
	v, err := call.ParsedValue()
	if err != nil {
		return usagef(c, "%v", err)
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	return cl.SetMemberMeta(c.Context, call.Name, call.Key, &v)
}

func (e *environment) drpcliList(c *cli.Context, call legacy.Call) error {
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	filter, err := legacy.Filter(cl.Name(), call.Terms)
	if err != nil {
		return usagef(c, "drpcli %s: %v", call.Verb, err)
	}
	if _, err := cl.Profile(c.Context); err != nil {
		return err
	}
	count := call.Verb == "machines count"
	o := cluster.MembersOptions{Filter: filter, Unreadable: unreadable(c)}
	if !count {
		o.Need = cluster.NeedCatalog
	}
	all, err := cl.Members(c.Context, o)
	if err != nil {
		return err
	}
	if count {
		_, err := fmt.Fprintln(c.App.Writer, len(all))
		return err
	}
	machines := make([]legacy.Machine, len(all))
	for i, m := range all {
		machines[i] = legacy.MachineOf(cl.Name(), m, call.Slim)
	}
	return writeJSON(c.App.Writer, machines)
}

func (e *environment) drpcliWorkflow(c *cli.Context, call legacy.Call) error {
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	m, err := cl.MemberOf(c.Context, call.Name, cluster.NeedCatalog)
	if err != nil {
		return err
	}
	q := runs.Request{Workflow: call.Value, Filter: fmt.Sprintf("Node == %q", m.Node)}
	if slices.Contains(m.Roles, cluster.RoleManager) {
		q.Role = cluster.RoleManager
	}
	if err := q.Check(); err != nil {
		return usagef(c, "%v", err)
	}
	id := runs.NewID(time.Now())
	if _, _, err := e.askFor(c, cl, id, q); err != nil {
		return err
	}
	noteNoOrchestrator(c, cl)
	machine := legacy.MachineOf(cl.Name(), m, nil)
	machine.Workflow, machine.Run = call.Value, id
	return writeJSON(c.App.Writer, machine)
}

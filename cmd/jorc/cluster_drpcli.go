package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/runs"
)

// drpcliCommand carries out what the function drpcli of setup.tmpl is called with:
// the calls of Digital Rebar's command line that scripts for clusters make. The
// function passes its arguments on stdin, because the process list would show
// the values in them.
func drpcliCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "drpcli", Hidden: true, Usage: "carry out a call of drpcli", Action: env.drpcli,
		Description: "Reads its arguments on stdin, each ended by a zero byte, their number first. What follows them is the value of 'to -'.",
	}
}

// drpcliForms are the calls that exist.
const drpcliForms = "profiles add|set PROFILE param KEY to VALUE, machines list|count [KEY Eq VALUE | EXPR]… [--slim Params,Meta], " +
	"machines meta set ID key KEY to VALUE, machines workflow ID NAME"

// drpcliInstead names the jorc command for what drpcli could do besides.
var drpcliInstead = map[string]string{
	"profiles": "cluster profile", "machines": "cluster members", "machines get": "cluster profile get --node", "machines set": "cluster profile set --node",
	"machines add": "cluster profile add --node", "machines remove": "cluster profile remove --node", "machines params": "cluster profile get --effective --node",
	"machines wait": "cluster wait", "machines meta": "cluster meta", "machines addprofile": "cluster join", "machines removeprofile": "cluster leave",
	"machines show": "cluster members --filter", "machines exists": "cluster members --filter", "machines destroy": "cluster leave",
	"machines run": "cluster run", "jobs": "cluster runs", "workflows": "workflow list", "tasks": "workflow list", "params": "cluster profile schema",
	"events": "cluster events", "users": "cluster bootstrap-acl", "roles": "cluster bootstrap-acl", "contents": "cluster import",
}

// drpcliCall is one call.
type drpcliCall struct {
	words []string // the noun and its verbs
	name  string   // PROFILE or ID
	key   string
	value string
	ref   *string  // of -r
	terms []string // of a list
	slim  []string
	rest  []byte // of stdin
}

func (e *environment) drpcli(c *cli.Context) error {
	if err := none(c); err != nil {
		return err
	}
	call, err := readDrpcli(e.stdin)
	if err != nil {
		return usagef(c, "%v", err)
	}
	switch strings.Join(call.words, " ") {
	case "profiles add", "profiles set":
		return e.drpcliParam(c, call)
	case "machines meta set":
		return e.drpcliMeta(c, call)
	case "machines workflow":
		return e.drpcliWorkflow(c, call)
	}
	return e.drpcliList(c, call)
}

// readDrpcli reads the arguments of a call and what follows them.
func readDrpcli(in io.Reader) (drpcliCall, error) {
	data, err := io.ReadAll(io.LimitReader(in, 2*profile.MaxInput))
	if err != nil {
		return drpcliCall{}, err
	}
	first, data, found := bytes.Cut(data, []byte{0})
	n, err := strconv.Atoi(string(first))
	if !found || err != nil || n < 0 {
		return drpcliCall{}, errors.New("stdin does not hold the arguments; call the function drpcli of setup.tmpl")
	}
	var args []string
	for range n {
		arg, after, found := bytes.Cut(data, []byte{0})
		if !found {
			return drpcliCall{}, errors.New("stdin ends before the last argument")
		}
		args, data = append(args, string(arg)), after
	}
	call, err := parseDrpcli(args)
	call.rest = data
	return call, err
}

// parseDrpcli reads the arguments of a call. Errors do not contain values.
func parseDrpcli(args []string) (drpcliCall, error) {
	var call drpcliCall
	words, err := call.flags(args)
	if err != nil {
		return call, err
	}
	lists := len(words) >= 2 && words[0] == "machines" && (words[1] == "list" || words[1] == "count")
	switch {
	case hasForm(words, "profiles add|set PROFILE param KEY to VALUE"):
		call.words, call.name, call.key, call.value = words[:2], words[2], words[4], words[6]
	case hasForm(words, "machines meta set ID key KEY to VALUE"):
		call.words, call.name, call.key, call.value = words[:3], words[3], words[5], words[7]
	case hasForm(words, "machines workflow ID NAME"):
		call.words, call.name, call.value = words[:2], words[2], words[3]
	case lists:
		call.words, call.terms = words[:2], words[2:]
	default:
		return call, unknownDrpcli(words)
	}
	switch {
	case call.ref != nil && strings.Join(call.words, " ") != "profiles set":
		return call, errors.New("drpcli: -r needs 'profiles set'")
	case call.slim != nil && !lists:
		return call, errors.New("drpcli: --slim needs 'machines list' or 'machines count'")
	}
	return call, nil
}

// hasForm reports whether words have the form: a word in capitals matches any.
func hasForm(words []string, form string) bool {
	pattern := strings.Fields(form)
	for i, p := range pattern {
		if i >= len(words) || p != strings.ToUpper(p) && !slices.Contains(strings.Split(p, "|"), words[i]) {
			return false
		}
	}
	return len(words) == len(pattern)
}

// flags takes -r and --slim out of the arguments. What follows one of the words of a
// form is a name or value, whatever it looks like.
func (d *drpcliCall) flags(args []string) (words []string, err error) {
	for i := 0; i < len(args); i++ {
		flag, value, joined := strings.Cut(args[i], "=")
		before := ""
		if len(words) > 0 {
			before = words[len(words)-1]
		}
		switch {
		case slices.Contains([]string{"to", "param", "key", "Eq"}, before) || !strings.HasPrefix(args[i], "-"):
			words = append(words, args[i])
			continue
		case !slices.Contains([]string{"-r", "--ref", "--slim"}, flag):
			return nil, fmt.Errorf("drpcli: flag %s is not supported; supported are: -T TOKEN, -r REFERENCE and %s", flag, drpcliForms)
		case !joined && i+1 == len(args):
			return nil, fmt.Errorf("drpcli: flag %s needs a value", flag)
		case !joined:
			i++
			value = args[i]
		}
		if flag != "--slim" {
			d.ref = &value
			continue
		}
		d.slim = strings.Split(value, ",")
		if slices.ContainsFunc(d.slim, func(f string) bool { return f != "Params" && f != "Meta" }) {
			return nil, errors.New("drpcli: --slim leaves out Params, Meta or both, with a comma between them")
		}
	}
	return words, nil
}

// unknownDrpcli names the jorc command for a call that does not exist.
func unknownDrpcli(words []string) error {
	said := strings.Join(words[:min(len(words), 2)], " ")
	instead := cmp.Or(drpcliInstead[said], drpcliInstead[strings.Join(words[:min(len(words), 1)], "")], "cluster --help")
	return fmt.Errorf("drpcli %s: not supported in this form; use 'jorc %s'; supported are: %s", said, instead, drpcliForms)
}

// drpcliValue returns what follows 'to': text, or stdin for "-".
func (d drpcliCall) drpcliValue(c *cli.Context) (profile.Value, error) {
	text := d.value
	if text == "-" {
		text = string(d.rest)
	}
	v, err := profile.ParseValue(text)
	if err != nil {
		return v, usagef(c, "drpcli: VALUE: %v", err)
	}
	return v, nil
}

func (e *environment) drpcliParam(c *cli.Context, call drpcliCall) error {
	v, err := call.drpcliValue(c)
	if err != nil {
		return err
	}
	ref := profile.Ref{Absent: call.words[1] == "add"}
	if call.ref != nil {
		want, err := profile.ParseValue(*call.ref)
		if err != nil {
			return usagef(c, "drpcli: -r: %v", err)
		}
		ref.Value = &want
	}
	cl, err := e.cluster(c, call.name)
	if err != nil {
		return err
	}
	return e.changed(c)(cl.ChangeProfile(c.Context, func(ed *profile.Editor, d profile.Document) (profile.Document, error) {
		// A param that does not exist has the default of its schema, as get_param
		// prints it, or else is empty.
		if fallback, ok := d.Default(call.key); ref.Value != nil && ok {
			ref.Default = &fallback
		} else if ref.Value != nil && *call.ref == "" {
			ref.Default = ref.Value
		}
		return ed.Set(d, profile.Scope{}, call.key, v, ref)
	}))
}

func (e *environment) drpcliMeta(c *cli.Context, call drpcliCall) error {
	v, err := call.drpcliValue(c)
	if err != nil {
		return err
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	return cl.SetMemberMeta(c.Context, call.name, call.key, &v)
}

// drpcliMachine is a member as such scripts read it.
type drpcliMachine struct {
	UUID     string         `json:"Uuid"`
	Name     string         `json:"Name"`
	Address  string         `json:"Address"`
	Profiles []string       `json:"Profiles"`
	Params   profile.Params `json:"Params,omitzero"`
	Meta     profile.Params `json:"Meta,omitzero"`
	Workflow string         `json:"Workflow,omitempty"` // that was asked for
	Run      string         `json:"Run,omitempty"`
}

func machineOf(cl *cluster.Cluster, m cluster.Member, slim []string) drpcliMachine {
	d := drpcliMachine{UUID: m.Node, Name: m.Node, Address: m.Address, Profiles: []string{cl.Name()}}
	if !slices.Contains(slim, "Params") {
		d.Params = profile.Params{}
		for _, role := range []string{cluster.RoleLeader, cluster.RoleManager} {
			d.Params["cluster/"+role] = profile.Bool(slices.Contains(m.Roles, role))
		}
		for key, v := range m.Params {
			d.Params[key] = v
		}
	}
	if !slices.Contains(slim, "Meta") {
		d.Meta = m.Meta
	}
	return d
}

func (e *environment) drpcliList(c *cli.Context, call drpcliCall) error {
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	filter, err := drpcliFilter(cl.Name(), call.terms)
	if err != nil {
		return usagef(c, "drpcli machines %s: %v", call.words[1], err)
	}
	if _, err := cl.Profile(c.Context); err != nil {
		return err
	}
	o := cluster.MembersOptions{Filter: filter, Unreadable: unreadable(c)}
	if call.words[1] == "list" {
		o.Need = cluster.NeedCatalog
	}
	all, err := cl.Members(c.Context, o)
	if err != nil {
		return err
	}
	if call.words[1] == "count" {
		_, err := fmt.Fprintln(c.App.Writer, len(all))
		return err
	}
	machines := make([]drpcliMachine, len(all))
	for i, m := range all {
		machines[i] = machineOf(cl, m, call.slim)
	}
	return writeJSON(c.App.Writer, machines)
}

// drpcliFilter reads the terms of a list: each is KEY Eq VALUE, or a filter as in
// cluster/filter. A script that does not quote {{.Param "cluster/filter"}} passes
// the words of either one by one.
func drpcliFilter(name string, words []string) (*cluster.Filter, error) {
	var split []string
	for _, w := range words {
		if fields := strings.Fields(w); len(fields)%3 == 0 && len(fields) > 0 && fields[1] == "Eq" {
			split = append(split, fields...)
			continue
		}
		split = append(split, w)
	}
	var all []*cluster.Filter
	var text []string
	flush := func() error {
		f, err := cluster.ParseFilter(strings.Join(text, " "))
		all, text = append(all, f), nil
		return err
	}
	for i := 0; i < len(split); i++ {
		if i+2 >= len(split) || split[i+1] != "Eq" {
			text = append(text, split[i])
			continue
		}
		if err := flush(); err != nil {
			return nil, err
		}
		f, err := drpcliTerm(name, split[i], split[i+2])
		if err != nil {
			return nil, err
		}
		all = append(all, f)
		i += 2
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return cluster.AllOf(all...), nil
}

// drpcliTerm returns the filter for KEY Eq VALUE in the cluster called name.
func drpcliTerm(name, key, value string) (*cluster.Filter, error) {
	switch key {
	case "Profiles":
		if value == name {
			return cluster.ParseFilter("")
		}
		return cluster.ParseFilter(`Node == ""`) // members of this cluster alone are listed
	case "Uuid", "Name":
		return cluster.FieldEquals("Node", value)
	case "Address":
		return cluster.FieldEquals(key, value)
	}
	if !strings.Contains(key, "/") && strings.ToLower(key) != key {
		return nil, fmt.Errorf("%s: not a field of members; use 'jorc cluster members --filter'; Uuid, Name, Address, Profiles and the names of params can be compared", key)
	}
	return cluster.ParamEquals(key, value), nil
}

func (e *environment) drpcliWorkflow(c *cli.Context, call drpcliCall) error {
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	m, err := cl.MemberOf(c.Context, call.name, cluster.NeedCatalog)
	if err != nil {
		return err
	}
	q := runs.Request{Workflow: call.value, Filter: fmt.Sprintf("Node == %q", m.Node)}
	if slices.Contains(m.Roles, cluster.RoleManager) {
		q.Role = cluster.RoleManager
	}
	if err := q.Check(); err != nil {
		return usagef(c, "%v", err)
	}
	r, id := runs.New(cl.Store()), runs.NewID(time.Now())
	if err := checkMembers(c.Context, cl, r, id, q); err != nil {
		return err
	}
	by, err := e.author(c)
	if err != nil {
		return err
	}
	if _, _, err := r.Ask(c.Context, id, q, by); err != nil {
		return err
	}
	e.wantsOrchestrator(c, r)
	machine := machineOf(cl, m, nil)
	machine.Workflow, machine.Run = call.value, id
	return writeJSON(c.App.Writer, machine)
}

package legacy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/runs"
)

// Drpcli returns the command that carries out a call of drpcli, the command line of Digital Rebar. The function
// drpcli of setup.tmpl passes the arguments on stdin, because the process list would show the values in them.
func Drpcli(p Program) *cli.Command {
	return &cli.Command{
		Name: "drpcli", Hidden: true, Usage: "carry out a call of drpcli", Action: names{p}.drpcli,
		Description: "Reads its arguments on stdin, each ended by a zero byte, their number first. What follows them is the value of 'to -'.",
	}
}

func (n names) drpcli(c *cli.Context) error {
	call, err := ReadCall(c.App.Reader)
	if err != nil {
		return usage(c, err)
	}
	switch call.Verb {
	case "profiles add", "profiles set":
		return n.setParam(c, call)
	case "machines meta set":
		return n.setMeta(c, call)
	case "machines workflow":
		return n.runWorkflow(c, call)
	}
	return n.list(c, call)
}

func (n names) setParam(c *cli.Context, call Call) error {
	v, err := call.ParsedValue()
	if err != nil {
		return usage(c, err)
	}
	ref, err := call.Ref()
	if err != nil {
		return usage(c, err)
	}
	t, err := n.Open(c, call.Name)
	if err != nil {
		return err
	}
	d, err := t.ChangeProfile(c.Context, func(ed *profile.Editor, d profile.Document) (profile.Document, error) {
		return ed.Set(d, profile.Scope{}, call.Key, v, ref(d))
	})
	if warning := d.Size().Warning(); err == nil && warning != "" {
		note(c, "%s", warning)
	}
	return err
}

func (n names) setMeta(c *cli.Context, call Call) error {
	v, err := call.ParsedValue()
	if err != nil {
		return usage(c, err)
	}
	t, err := n.Open(c, "")
	if err != nil {
		return err
	}
	return t.SetMemberMeta(c.Context, call.Name, call.Key, &v)
}

func (n names) list(c *cli.Context, call Call) error {
	t, err := n.Open(c, "")
	if err != nil {
		return err
	}
	filter, err := Filter(t.Name(), call.Terms)
	if err != nil {
		return usage(c, fmt.Errorf("drpcli %s: %w", call.Verb, err))
	}
	if _, err := t.Profile(c.Context); err != nil {
		return err
	}
	count := call.Verb == "machines count"
	o := fleet.MembersOptions{Filter: filter, Unreadable: func(key string, err error) { note(c, "%s was left out: %v", key, err) }}
	if !count {
		o.Need = cluster.NeedCatalog
	}
	all, err := t.Members(c.Context, o)
	if err != nil {
		return err
	}
	if count {
		_, err := fmt.Fprintln(c.App.Writer, len(all))
		return err
	}
	machines := make([]Machine, len(all))
	for i, m := range all {
		machines[i] = MachineOf(t.Name(), m, call.Slim)
	}
	return writeJSON(c, machines)
}

func (n names) runWorkflow(c *cli.Context, call Call) error {
	t, err := n.Open(c, "")
	if err != nil {
		return err
	}
	m, err := t.MemberOf(c.Context, call.Name, cluster.NeedCatalog)
	if err != nil {
		return err
	}
	machine := MachineOf(t.Name(), m, nil)
	machine.Workflow, machine.Run = call.Value, runs.NewID(time.Now())
	flags := map[string]string{"id": machine.Run, "filter": fmt.Sprintf("Node == %q", m.Node)}
	if slices.Contains(m.Roles, cluster.RoleManager) {
		flags["role"] = cluster.RoleManager
	}
	if err := n.Do(c, Command{Name: "cluster run", Args: []string{call.Value}, Flags: flags, Stdout: io.Discard}); err != nil {
		return err
	}
	return writeJSON(c, machine)
}

func note(c *cli.Context, format string, args ...any) {
	fmt.Fprintf(c.App.ErrWriter, "jorc: "+format+"\n", args...)
}

func writeJSON(c *cli.Context, v any) error {
	encoder := json.NewEncoder(c.App.Writer)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// forms are the calls that exist.
const forms = "profiles add|set PROFILE param KEY to VALUE, machines list|count [KEY Eq VALUE | EXPR]… [--slim Params,Meta], " +
	"machines meta set ID key KEY to VALUE, machines workflow ID NAME"

// replacements names the jorc command for what drpcli could do besides.
var replacements = map[string]string{
	"profiles": "cluster profile", "machines": "cluster members", "machines get": "cluster profile get --node", "machines set": "cluster profile set --node",
	"machines add": "cluster profile add --node", "machines remove": "cluster profile remove --node", "machines params": "cluster profile get --effective --node",
	"machines wait": "cluster wait", "machines meta": "cluster meta", "machines addprofile": "cluster join", "machines removeprofile": "cluster leave",
	"machines show": "cluster members --filter", "machines exists": "cluster members --filter", "machines destroy": "cluster leave",
	"machines run": "cluster run", "jobs": "cluster runs", "workflows": "workflow list", "tasks": "workflow list", "params": "cluster profile schema",
	"events": "cluster events", "users": "cluster bootstrap-acl", "roles": "cluster bootstrap-acl", "contents": "cluster import",
}

// Call is one call of drpcli.
type Call struct {
	Verb  string // the noun and its verbs: "profiles set"
	Name  string // PROFILE or ID
	Key   string
	Value string   // of a workflow: its name
	Terms []string // of a list
	Slim  []string // fields that a list leaves out

	ref  *string // of -r
	rest []byte  // of stdin
}

// ReadCall reads the arguments of a call of drpcli and what follows them.
func ReadCall(in io.Reader) (Call, error) {
	data, err := io.ReadAll(io.LimitReader(in, 2*profile.MaxInput))
	if err != nil {
		return Call{}, err
	}
	first, data, found := bytes.Cut(data, []byte{0})
	n, err := strconv.Atoi(string(first))
	if !found || err != nil || n < 0 {
		return Call{}, errors.New("stdin does not hold the arguments; call the function drpcli of setup.tmpl")
	}
	var args []string
	for range n {
		arg, after, found := bytes.Cut(data, []byte{0})
		if !found {
			return Call{}, errors.New("stdin ends before the last argument")
		}
		args, data = append(args, string(arg)), after
	}
	call, err := parse(args)
	call.rest = data
	return call, err
}

// parse reads the arguments of a call. Errors do not contain values.
func parse(args []string) (Call, error) {
	var call Call
	words, err := call.flags(args)
	if err != nil {
		return call, err
	}
	lists := len(words) >= 2 && words[0] == "machines" && (words[1] == "list" || words[1] == "count")
	switch {
	case hasForm(words, "profiles add|set PROFILE param KEY to VALUE"):
		call.Verb, call.Name, call.Key, call.Value = verb(words[:2]), words[2], words[4], words[6]
	case hasForm(words, "machines meta set ID key KEY to VALUE"):
		call.Verb, call.Name, call.Key, call.Value = verb(words[:3]), words[3], words[5], words[7]
	case hasForm(words, "machines workflow ID NAME"):
		call.Verb, call.Name, call.Value = verb(words[:2]), words[2], words[3]
	case lists:
		call.Verb, call.Terms = verb(words[:2]), words[2:]
	default:
		return call, unknown(words)
	}
	switch {
	case call.ref != nil && call.Verb != "profiles set":
		return call, errors.New("drpcli: -r needs 'profiles set'")
	case call.Slim != nil && !lists:
		return call, errors.New("drpcli: --slim needs 'machines list' or 'machines count'")
	}
	return call, nil
}

func verb(words []string) string { return strings.Join(words, " ") }

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
func (c *Call) flags(args []string) (words []string, err error) {
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
			return nil, fmt.Errorf("drpcli: flag %s is not supported; supported are: -T TOKEN, -r REFERENCE and %s", flag, forms)
		case !joined && i+1 == len(args):
			return nil, fmt.Errorf("drpcli: flag %s needs a value", flag)
		case !joined:
			i++
			value = args[i]
		}
		if flag != "--slim" {
			c.ref = &value
			continue
		}
		c.Slim = strings.Split(value, ",")
		if slices.ContainsFunc(c.Slim, func(f string) bool { return f != "Params" && f != "Meta" }) {
			return nil, errors.New("drpcli: --slim leaves out Params, Meta or both, with a comma between them")
		}
	}
	return words, nil
}

// unknown names the jorc command for a call that does not exist.
func unknown(words []string) error {
	given := strings.Join(words[:min(len(words), 2)], " ")
	instead := cmp.Or(replacements[given], replacements[strings.Join(words[:min(len(words), 1)], "")], "cluster --help")
	return fmt.Errorf("drpcli %s: not supported in this form; use 'jorc %s'; supported are: %s", given, instead, forms)
}

// ParsedValue returns what follows 'to': text, or stdin for "-". Errors do not
// contain values.
func (c Call) ParsedValue() (profile.Value, error) {
	text := c.Value
	if text == "-" {
		text = string(c.rest)
	}
	v, err := profile.ParseValue(text)
	if err != nil {
		return v, fmt.Errorf("drpcli: VALUE: %w", err)
	}
	return v, nil
}

// Ref is the condition of a change of a param: of 'profiles add' that it does not
// exist, of -r its value in the document. A param that does not exist has the
// default of its schema, as get_param prints it, or else is empty.
func (c Call) Ref() (func(profile.Document) profile.Ref, error) {
	ref := profile.Ref{Absent: c.Verb == "profiles add"}
	if c.ref == nil {
		return func(profile.Document) profile.Ref { return ref }, nil
	}
	want, err := profile.ParseValue(*c.ref)
	if err != nil {
		return nil, fmt.Errorf("drpcli: -r: %w", err)
	}
	ref.Value = &want
	return func(d profile.Document) profile.Ref {
		ref := ref
		if fallback, ok := d.Default(c.Key); ok {
			ref.Default = &fallback
		} else if *c.ref == "" {
			ref.Default = ref.Value
		}
		return ref
	}, nil
}

// Machine is a member as such scripts read it.
type Machine struct {
	UUID     string         `json:"Uuid"`
	Name     string         `json:"Name"`
	Address  string         `json:"Address"`
	Profiles []string       `json:"Profiles"`
	Params   profile.Params `json:"Params,omitzero"`
	Meta     profile.Params `json:"Meta,omitzero"`
	Workflow string         `json:"Workflow,omitempty"` // that was asked for
	Run      string         `json:"Run,omitempty"`
}

// MachineOf is a member of the named cluster, without the fields of slim.
func MachineOf(name string, m cluster.Member, slim []string) Machine {
	d := Machine{UUID: m.Node, Name: m.Node, Address: m.Address, Profiles: []string{name}}
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

// Filter reads the terms of a list: each is KEY Eq VALUE, or a filter as in
// cluster/filter. {{.Param "cluster/filter"}} prints either as one word; a script that has a
// filter of its own without quotes passes the words one by one.
func Filter(name string, words []string) (*cluster.Filter, error) {
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
		f, err := term(name, split[i], split[i+2])
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

// term returns the filter for KEY Eq VALUE in the cluster called name.
func term(name, key, value string) (*cluster.Filter, error) {
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

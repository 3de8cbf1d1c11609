// Package openapi makes docs/openapi.json from the types of the answers of
// /v1/fleet, and tests that every answer is as described.
package openapi

import (
	"encoding"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/ui"
)

// operation is one path below the API's root.
type operation struct {
	path, id, summary string
	answer            any      // a value of the type of its answer; nil: a stream
	query             []string // names of parameters
}

// one is the path of a cluster.
const one = "/v1/fleet/clusters/{cluster}"

var (
	page  = []string{"offset", "limit"}
	hosts = append([]string{"filter", "role", "sort", "columns"}, page...)
)

// operations are all of the API.
var operations = []operation{
	{"/v1/fleet/clusters", "listClusters", "The clusters that the viewer may see.", ui.Clusters{}, nil},
	{one, "getOverview", "A cluster at a glance.", ui.Overview{}, nil},
	{one + "/attention", "getAttention", "What needs an operator.", ui.Attention{}, nil},
	{one + "/changes", "listChanges", "All that reaches hosts one after the other: versions, files of stages, runs and leases. The ones in progress come first.", ui.Changes{}, append([]string{"kind", "state"}, page...)},
	{one + "/changes/{change}", "getChange", "One change with its hosts; its ID is KIND.NAME.", ui.Change{}, append([]string{"state"}, page...)},
	{one + "/hosts", "listHosts", "Members, filtered and ordered.", ui.Hosts{}, hosts},
	{one + "/hosts/{host}", "getHost", "One host.", ui.Host{}, nil},
	{one + "/targets", "listTargets", "Members for Prometheus' HTTP service discovery.", []ui.Target{}, append([]string{"port"}, hosts...)},
	{one + "/events", "listEvents", "The last events, the newest first.", ui.Events{}, []string{"kind", "host", "service", "after", "before", "limit"}},
	{one + "/services", "listServices", "Services and who requires them.", ui.Services{}, page},
	{one + "/services/{service}", "getService", "One service with its hosts.", ui.ServiceDetail{}, nil},
	{one + "/dependencies", "getDependencies", "Which hosts require services of which.", ui.Dependencies{}, nil},
	{one + "/slots", "listSlots", "Groups of slots with holders and queues.", ui.Slots{}, nil},
	{one + "/audit", "listAudit", "Who changed the cluster, when and why, the newest first.", ui.Audit{}, page},
	{one + "/leaders", "getLeaders", "Leaders and managers.", ui.Leaders{}, nil},
	{one + "/profile", "getProfile", "The profile; values only when they are asked for, secret ones never.", ui.Profile{}, []string{"values"}},
	{one + "/profile/history", "listProfileChanges", "Who changed the profile, when, why, and from what to what, the newest first; secret values never.", ui.ProfileHistory{}, append([]string{"values"}, page...)},
	{one + "/stream", "getStream", "Server-sent events: `change`, `journal`, `reset`, `end`. `Last-Event-ID` resumes.", nil, []string{"kind", "host", "service"}},
}

// parameters describe what queries may hold.
var parameters = map[string]object{
	"filter":  {"description": "An expression as `jorc cluster members --filter` takes it.", "schema": object{"type": "string"}},
	"role":    {"description": "Only hosts with the role.", "schema": object{"type": "string"}},
	"sort":    {"description": "A field; `-` before it sorts in descending order.", "schema": object{"type": "string"}},
	"columns": {"description": "Fields to show beside the fixed ones, separated by commas.", "schema": object{"type": "string"}},
	"offset":  {"description": "How many to leave out.", "schema": object{"type": "integer", "minimum": 0}},
	"limit":   {"description": "How many to return at most.", "schema": object{"type": "integer", "minimum": 0, "maximum": ui.MaxLimit, "default": ui.DefaultLimit}},
	"state":   {"description": "Only those in the state: of changes `in_progress` or `ended`, of a rollout's hosts theirs.", "schema": object{"type": "string"}},
	"kind":    {"description": "Only events or changes of the kind; kinds of events separated by commas.", "schema": object{"type": "string"}},
	"host":    {"description": "Only events of the host.", "schema": object{"type": "string"}},
	"service": {"description": "Only events of the service.", "schema": object{"type": "string"}},
	"after":   {"description": "Only events with a higher number.", "schema": object{"type": "integer", "format": "int64", "minimum": 0}},
	"before":  {"description": "Only events with a lower number.", "schema": object{"type": "integer", "format": "int64", "minimum": 0}},
	"values":  {"description": "Show the values of params.", "schema": object{"type": "boolean"}},
	"port":    {"description": "The port of the targets.", "schema": object{"type": "integer", "minimum": 0, "maximum": 65535, "default": ui.DefaultPort}},
}

type object = map[string]any

// Document returns the description of the API; root is the repository's.
func Document(root string) ([]byte, error) {
	comments, err := readComments(filepath.Join(root, "internal"))
	if err != nil {
		return nil, err
	}
	d := describer{schemas: object{}, comments: comments}
	paths := object{}
	for _, o := range operations {
		paths[o.path] = object{"get": d.operation(o)}
	}
	d.schemas["Error"] = object{"type": "object", "required": []string{"error"}, "properties": object{"error": object{"type": "string"}}}
	return json.MarshalIndent(object{
		"openapi": "3.0.3",
		"info": object{
			"title": "jorc: the fleet", "version": "1", "license": object{"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
			"description": "Read-only. `jorc ui` serves it on loopback, an agent's `ui` block for a team. Fields are added, but never renamed or given another meaning.",
		},
		"servers":  []object{{"url": "/"}},
		"security": []object{{"session": []string{}}, {"token": []string{}}},
		"paths":    paths,
		"components": object{
			"schemas": d.schemas,
			"securitySchemes": object{
				"session": object{"type": "apiKey", "in": "cookie", "name": "jorc_ui", "description": "Set by a login; its name also has the port."},
				"token":   object{"type": "http", "scheme": "bearer", "description": "The viewer's own Consul token, where viewers log in with one."},
			},
		},
	}, "", "  ")
}

// describer makes schemas of types.
type describer struct {
	schemas  object
	comments map[string]string // type or type.field → comment
}

func (d *describer) operation(o operation) object {
	var params []object
	for part := range strings.SplitSeq(o.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			params = append(params, object{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": object{"type": "string"}})
		}
	}
	for _, name := range o.query {
		p := object{"name": name, "in": "query"}
		for key, value := range parameters[name] {
			p[key] = value
		}
		params = append(params, p)
	}
	content := object{"text/event-stream": object{"schema": object{"type": "string"}}}
	if o.answer == nil {
		params = append(params, object{
			"name": "Last-Event-ID", "in": "header", "description": "The id of the last message that was received.", "schema": object{"type": "string"},
		})
	} else {
		content = object{"application/json": object{"schema": d.schema(reflect.TypeOf(o.answer))}}
	}
	failed := object{"description": "Why there is no answer.", "content": object{"application/json": object{"schema": object{"$ref": "#/components/schemas/Error"}}}}
	operation := object{
		"operationId": o.id, "summary": o.summary,
		"responses": object{"200": object{"description": o.summary, "content": content}, "default": failed},
	}
	if len(params) > 0 {
		operation["parameters"] = params
	}
	return operation
}

// name is what a type is called: types of other packages begin with the package.
func name(t reflect.Type) string {
	pkg := t.PkgPath()[strings.LastIndexByte(t.PkgPath(), '/')+1:]
	if pkg == "ui" {
		return t.Name()
	}
	return strings.ToUpper(pkg[:1]) + pkg[1:] + t.Name()
}

var (
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
)

func (d *describer) schema(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t.Implements(jsonMarshaler):
		return object{"nullable": true} // any JSON
	case t.Implements(textMarshaler):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Uint, reflect.Uint64:
		return object{"type": "integer", "format": "int64", "minimum": 0}
	case reflect.Slice:
		return object{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.Interface:
		return object{"nullable": true}
	case reflect.Struct:
		ref := object{"$ref": "#/components/schemas/" + name(t)}
		if _, done := d.schemas[name(t)]; !done {
			d.schemas[name(t)] = object{} // types may refer to themselves
			d.schemas[name(t)] = d.structure(t)
		}
		return ref
	}
	panic(fmt.Sprintf("a type that no answer has: %v", t))
}

func (d *describer) structure(t reflect.Type) object {
	properties, required := object{}, []string{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous && tag == "":
				walk(f.Type)
				continue
			case !f.IsExported() || tag == "-":
				continue
			}
			if tag == "" {
				tag = f.Name
			}
			if properties[tag] != nil {
				panic(fmt.Sprintf("%v: two fields are called %q: one hides the other", t, tag))
			}
			s := d.schema(f.Type)
			if text := d.comments[t.PkgPath()+"."+t.Name()+"."+f.Name]; text != "" {
				if s["$ref"] != nil {
					s = object{"allOf": []object{s}}
				}
				s["description"] = text
			}
			properties[tag] = s
			if !strings.Contains(options, "omit") {
				required = append(required, tag)
			}
		}
	}
	walk(t)
	s := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	if text := d.comments[t.PkgPath()+"."+t.Name()]; text != "" {
		s["description"] = text
	}
	return s
}

// readComments reads what the source says of types and their fields.
func readComments(dir string) (map[string]string, error) {
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, filepath.Dir(file))
		if err != nil {
			return err
		}
		pkg := "github.com/jorc/jorc/internal/" + filepath.ToSlash(below)
		ast.Inspect(source, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok {
				return true
			}
			for _, spec := range decl.Specs {
				named, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				all[pkg+"."+named.Name.Name] = text(decl.Doc)
				if structure, ok := named.Type.(*ast.StructType); ok {
					for _, f := range structure.Fields.List {
						for _, id := range f.Names {
							all[pkg+"."+named.Name.Name+"."+id.Name] = strings.TrimSpace(text(f.Doc) + " " + text(f.Comment))
						}
					}
				}
			}
			return true
		})
		return nil
	})
	return all, err
}

// text is a comment on one line.
func text(group *ast.CommentGroup) string {
	if group == nil {
		return ""
	}
	var p comment.Parser
	var printer comment.Printer
	return strings.Join(strings.Fields(string(printer.Text(p.Parse(group.Text())))), " ")
}

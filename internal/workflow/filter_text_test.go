package workflow

import (
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/profile"
)

// filters are values of cluster/filter with what a shell acts upon.
var filters = []string{
	`Params["disks"] != 99`, `(Zone == "a" or "db" in Roles) and Node != "it's" # * ;&|>`,
	`Zone matches "a\\.b\c$HOME$(touch $DIR/pwned)"`, "Zone == \"a\"\nor Node == `x`\n",
}

// inScript are places of FILTER in a script in which a shell reads it as one word. Each writes
// it to the file out.
var inScript = map[string]string{
	"argument":              `printf %s FILTER >$DIR/out`,
	"quoted already":        `printf %s {{quote (.Param "cluster/filter")}} >$DIR/out`,
	"variable":              `{{$f := .Param "cluster/filter"}}printf %s {{$f}} >$DIR/out`,
	"with":                  `{{with .Param "cluster/filter"}}printf %s {{.}} >$DIR/out{{end}}`,
	"params":                `printf %s {{index .Params "cluster/filter"}} >$DIR/out`,
	"defined":               `{{define "f"}}printf %s FILTER >$DIR/out{{end}}{{template "f" .}}`,
	"assignment":            `f=FILTER; printf %s "$f" >$DIR/out`,
	"substitution":          `f=$(printf %s FILTER; echo .); printf %s "${f%.}" >$DIR/out`,
	"quoted substitution":   `f="$(printf %s FILTER; echo .)"; printf %s "${f%.}" >$DIR/out`,
	"backquotes":            "f=`printf %s FILTER; echo .`; printf %s \"${f%.}\" >$DIR/out",
	"case in substitution":  `f="$(case x in a) echo "a" ;; (b|x) printf %s FILTER; echo . ;; esac)"; printf %s "${f%.}" >$DIR/out`,
	"after case":            "case x in a) echo \"(\" ;; x) : ;; esac; f=\"$(printf %s FILTER; echo .)\"\nprintf %s \"${f%.}\" >$DIR/out",
	"subshell":              `f="$( (printf %s FILTER); echo .)"; printf %s "${f%.}" >$DIR/out`,
	"default":               `printf %s ${NONE:-FILTER} >$DIR/out`,
	"here-document command": "cat <<EOF >$DIR/out.\nit's $(printf %s FILTER; echo .)\nEOF\nf=$(cat $DIR/out.); f=${f#it\\'s }; printf %s \"${f%.}\" >$DIR/out",
	"after a comment":       "echo a#b' # \"its\" # (\n' >/dev/null # don't\n# it's\nprintf %s FILTER >$DIR/out",
	"after here-documents":  "cat >/dev/null <<A <<-'B' # it's\nit's \\\nA\nA\n$(\n\tB\nprintf %s FILTER >$DIR/out",
	"after arithmetic":      "n=$((1<<2)); [ $((n + (1))) = 5 ] || exit 9\nprintf %s FILTER >$DIR/out",
	"after quotes":          `f="it's"'"'\'\"\\"$"'$'; : "${f#\"}" "${f:-'a'}" '${' "\$(" \$\( ${f%'}'} "a"'b'; printf %s FILTER >$DIR/out`,
	"after the functions":   "{{template \"setup.tmpl\" .}}\nprintf %s FILTER >$DIR/out",
	"between options":       `f() { printf %s "$2" >$DIR/out; }; f a FILTER --slim Meta`,
}

// TestFilterIsOneWord: in a script the param cluster/filter is one word for the shell, whatever
// characters it has.
func TestFilterIsOneWord(t *testing.T) {
	t.Parallel()
	for name, script := range inScript {
		for _, shell := range []string{"#!/bin/dash\n", "#!/usr/bin/env -S bash -u\n"} {
			if script := strings.ReplaceAll(script, "FILTER", `{{.Param "cluster/filter"}}`); len(Warnings(ofScript(shell+script))) > 0 {
				t.Errorf("%s: got a warning: %v", name, Warnings(ofScript(shell+script)))
			}
			for _, filter := range filters {
				if got, log := runFilter(t, config.Task{Script: shell + strings.ReplaceAll(script, "FILTER", `{{.Param "cluster/filter"}}`)}, filter); got != filter {
					t.Errorf("%s%s: got %q, want %q\n%s", shell, name, got, filter, log)
				}
			}
		}
	}
}

// TestFilterStaysRaw: in quotes, in a here-document, in a command, in a variable and in a
// script that no shell runs the param is the text that it is.
func TestFilterStaysRaw(t *testing.T) {
	t.Parallel()
	const filter = `Params[disks] != 99 (a)`
	param := `{{.Param "cluster/filter"}}`
	for name, task := range map[string]config.Task{
		"double":        {Script: `printf %s "` + param + `" >$DIR/out`},
		"single":        {Script: `printf %s '` + param + `' >$DIR/out`},
		"escapes":       {Script: "#!/bin/bash\nprintf %s $'" + param + "' >$DIR/out"},
		"after command": {Script: `printf %s "$(echo "x" >/dev/null)` + param + `" >$DIR/out`},
		"braces":        {Script: `printf %s "${NONE:-` + param + `}" >$DIR/out`},
		"here-document": {Script: "f=$(cat <<EOF\n" + param + "\nEOF\n)\nprintf %s \"$f\" >$DIR/out"},
		"formatted":     {Script: `printf %s {{printf "%s" (` + `.Param "cluster/filter") | quote}} >$DIR/out`},
		"command":       {Command: []string{"sh", "-c", `printf %s "$1" >$DIR/out`, "sh", param}},
		"env":           {Command: []string{"sh", "-c", `printf %s "$F" >$DIR/out`}, Env: map[string]string{"F": param}},
		"python":        {Script: "#!/usr/bin/env python3\nimport os\nopen(os.environ['DIR'] + '/out', 'w').write(" + `"""` + param + `""")`},
		"sed":           {Command: []string{"sh", "-c", `{{if eq (.Param "cluster/filter") "` + filter + `"}}printf %s "$1" >$DIR/out{{end}}`, "sh", param}},
	} {
		if got, log := runFilter(t, task, filter); got != filter {
			t.Errorf("%s: got %q\n%s", name, got, log)
		}
	}
}

// runFilter runs a task in a cluster with the filter, and returns what it wrote to the file out.
func runFilter(t *testing.T, task config.Task, filter string) (out, log string) {
	t.Helper()
	v, err := profile.Text(filter)
	if err != nil {
		t.Fatal(err)
	}
	task.Name = "one"
	h := newHost(t, Options{Params: (&asking{params: profile.Params{"cluster/filter": v}}).Params}, task)
	res := h.run()
	if res.State != Success || h.read("pwned") != "" {
		t.Errorf("filter %q: the task ended as %s: %s", filter, res.State, res.Why)
	}
	return h.read("out"), h.log("j", "")
}

func ofScript(script string) []config.Workflow {
	return []config.Workflow{{Name: "w", Tasks: []config.Task{{Name: "t", Script: script}}}}
}

// TestFilterWarnings: the param inside quotes is named with its line, and nothing else is.
func TestFilterWarnings(t *testing.T) {
	t.Parallel()
	const param = `{{.Param "cluster/filter"}}`
	for script, want := range map[string]string{
		`x "` + param + `"`: "1",
		"x '" + param + "'": "1",
		"# it's\nx " + param + "\ny \"a " + param + " " + param + "\" " + param: "3",
		`x "{{quote (.Param "cluster/filter")}}"`:                               "1",
		`{{$f := .Param "cluster/filter"}}x "{{$f}}"`:                           "1",
		`x "{{if .ParamExists "a"}}` + param + `{{end}}"`:                       "1",
		`{{if .ParamExists "a"}}"{{else}}'{{end}}` + param:                      "1",
		"cat <<EOF\n" + param + "\nEOF":                                         "2",
		`{{template "setup.tmpl" .}}x ` + param:                                 "",
		`x "$(y ` + param + `)"`:                                                "",
		`x "{{.Param "a"}}" {{if .Param "cluster/filter"}}""{{end}}`:            "",
		"#!/usr/bin/python3\nx = \"" + param + `"`:                              "",
		"{{": "",
	} {
		var lines []string
		for _, err := range Warnings(ofScript(script)) {
			if text, ok := strings.CutPrefix(err.Error(), `workflow "w": task "t": script: line `); ok {
				line, _, _ := strings.Cut(text, ":")
				lines = append(lines, line)
			}
		}
		if got := strings.Join(lines, " "); got != want {
			t.Errorf("%s: got lines %q, want %q", script, got, want)
		}
	}
}

// FuzzShellReader: no script stops it, and what it knows does not depend on how the text is cut.
func FuzzShellReader(f *testing.F) {
	for _, script := range inScript {
		f.Add(script, 7)
	}
	f.Fuzz(func(t *testing.T, script string, cut int) {
		whole, parts := newShellReader(), newShellReader()
		whole.read(script)
		cut = min(max(cut, 0), len(script))
		parts.read(script[:cut])
		parts = parts.clone()
		parts.read(script[cut:])
		if whole.quoted() != parts.quoted() || len(whole.open) != len(parts.open) {
			t.Errorf("%q, cut at %d: got %+v, want %+v", script, cut, parts, whole)
		}
	})
}

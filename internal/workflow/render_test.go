package workflow

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/profile"
)

func TestRender(t *testing.T) {
	t.Parallel()
	job := Job{ID: "j1", Workflow: "w", Origin: "run 7", Version: "v1.10", Params: params(t,
		`{"s": "a b", "n": 4, "big": 12345678901234567890, "ten": 1.10, "f": 0.5, "b": true, "null": null, "l": ["x y", "it's"], "o": {"k": ["v"]}, "cluster/leader": true}`)}
	for _, test := range []struct{ in, want string }{
		{"plain ${HOME} } {", "plain ${HOME} } {"},
		{`{{.Param "s"}}`, "a b"},
		{`{{.Param "n"}} {{if eq (.Param "n") 4}}four{{end}}`, "4 four"},
		{`{{.Param "big"}} {{.Param "ten"}} {{.Param "f"}}`, "12345678901234567890 1.10 0.5"},
		{`{{if .Param "b"}}yes{{end}}{{if .Param "null"}}no{{end}}`, "yes"},
		{`{{.Param "l"}} {{.Param "o"}}`, `["x y","it's"] {"k":["v"]}`},
		{`{{range .Param "l"}}<{{.}}>{{end}}`, "<x y><it's>"},
		{`{{(.Param "o").k}} {{len (.Param "l")}}`, `["v"] 2`},
		{`{{quote (.Param "s")}} {{quote (.Param "l")}} {{quote ""}} {{quote (.Param "null")}} {{quote (.Param "n")}}`, `'a b' 'x y' 'it'\''s' '' '' '4'`},
		{`{{json (.Param "s")}} {{json (.Param "o")}} {{json "<&>"}}`, `"a b" {"k":["v"]} "<&>"`},
		{`{{.ParamExists "s"}} {{.ParamExists "nope"}} {{.ParamExists "null"}}`, "true false true"},
		{`{{if .ParamExists "cluster/leader"}}leader{{end}}`, "leader"},
		{`{{.Version}} {{.VersionExists}} {{.Node}} {{.Job.ID}} {{.Job.Workflow}} {{.Job.Origin}}`, "v1.10 true n1 j1 w run 7"},
		{`{{range $k, $v := .Params}}{{$k}} {{end}}`, "b big cluster/leader f l n null o s ten "},
	} {
		got, err := render(test.in, newFacts(t.Context(), &Options{Node: "n1"}, job))
		if err != nil || got != test.want {
			t.Errorf("%s: got %q, %v, want %q", test.in, got, err, test.want)
		}
	}
}

// TestRenderErrors: a job whose templates fail is not created.
func TestRenderErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, want string }{
		{`{{.Param "nope"}}`, `there is no param "nope": guard it with {{if .ParamExists "nope"}}`},
		{`{{.Version}}`, "no version yet"},
		{`{{`, "unclosed action"},
		{`{{.Nope}}`, "can't evaluate field Nope"},
		{`{{template "nope"}}`, `"nope" not defined`},
		{`{{define "x"}}{{template "x"}}{{end}}{{template "x"}}`, "exceeded maximum template depth"},
		{`{{range .Param "l"}}{{range $.Param "l"}}{{range $.Param "l"}}{{range $.Param "l"}}0123456789{{end}}{{end}}{{end}}{{end}}`, "grows beyond 1024 KiB"},
		{`{{quote (.Param "zero")}}`, "no shell takes a zero byte"},
		{`{{.Param "zero"}}`, "zero byte, which no program takes"},
	} {
		h := newHost(t, Options{}, config.Task{Name: "one", Command: []string{"echo", test.in}})
		p := params(t, `{"zero": "a\u0000b", "l": [`+strings.Repeat("1,", 49)+`1]}`)
		_, err := h.Run(t.Context(), Job{ID: "j", Workflow: "w", Params: p})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `task "one": invalid: command[1]`) {
			t.Errorf("%s: got %v, want %q", test.in, err, test.want)
		}
		if _, err := h.Job("j"); !errors.Is(err, ErrNoJob) {
			t.Errorf("%s: got %v, want no job", test.in, err)
		}
	}
}

// hostile are values that a shell, a template or a terminal might act upon.
var hostile = []string{
	`$(touch "$DIR/pwned")`, "`touch $DIR/pwned`", `'; touch $DIR/pwned; '`, `"; touch $DIR/pwned; "`, `'\''; touch $DIR/pwned; '\''`,
	"\ntouch $DIR/pwned\n", `{{.Version}}{{template "cluster-utilities.tmpl" .}}`, "-rf", "*", "~", "a\\", "!!", "\x1b]0;x\a", "ä 世界", "", " ",
}

// TestHostileParams: what comes from outside stays data, in arguments, in the
// environment, and in scripts that quote it.
func TestHostileParams(t *testing.T) {
	t.Parallel()
	for _, value := range hostile {
		v, err := profile.Text(value)
		if err != nil {
			t.Fatal(err)
		}
		tasks := []config.Task{
			{Name: "arguments", Command: []string{"sh", "-c", `printf '%s' "$1" >$DIR/arguments`, "sh", `{{.Param "x"}}`}},
			{Name: "environment", Command: []string{"sh", "-c", `printf '%s' "$X" >$DIR/environment`}, Env: map[string]string{"X": `{{.Param "x"}}`}},
			{Name: "script", Script: `printf '%s' {{quote (.Param "x")}} >$DIR/script`},
			{Name: "bash", Script: "#!/bin/bash\nset -eu\nprintf '%s' {{quote (.Param \"x\")}} >$DIR/bash"},
			{Name: "python", Script: "#!/usr/bin/env python3\nimport json, os\nopen(os.environ['DIR'] + '/python', 'w', newline='').write(json.load(open(os.environ['JORC_PARAMS']))['x'])"},
		}
		h := newHost(t, Options{}, tasks...)
		res, err := h.Run(t.Context(), Job{ID: "j", Workflow: "w", Params: profile.Params{"x": v}})
		if err != nil || res.State != Success {
			t.Fatalf("%q: %+v, %v", value, res, err)
		}
		for i := range tasks {
			if got := h.read(tasks[i].Name); got != value {
				t.Errorf("%s: got %q, want %q", tasks[i].Name, got, value)
			}
		}
		if _, err := os.Stat(filepath.Join(h.dir, "pwned")); err == nil {
			t.Errorf("%q was acted upon", value)
		}
	}
}

func TestInterpreter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ script, want string }{
		{"echo", "/bin/sh"},
		{"", "/bin/sh"},
		{"#!/bin/bash\n", "/bin/bash"},
		{"#! /bin/bash -eu \necho", "/bin/bash|-eu"},
		{"#!/usr/bin/env -S python3 -u\r\n", "/usr/bin/env|-S python3 -u"},
		{"#!\t/bin/sh\t-x", "/bin/sh|-x"},
		{"#!\n", "/bin/sh"},
		{"# !/bin/bash\n", "/bin/sh"},
		{"\n  \n#!/bin/bash\n", "/bin/bash"},
		{"\n echo\n#!/bin/bash\n", "/bin/sh"},
	} {
		if got := strings.Join(interpreter(tidy(test.script)), "|"); got != test.want {
			t.Errorf("%q: got %s, want %s", test.script, got, test.want)
		}
	}
}

// TestClusterUtilities: the functions end tasks as they say, and call jorc with
// the words that 'jorc cluster' takes.
func TestClusterUtilities(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	stub := `#!/bin/sh
case "$*" in *" -- cluster/profile") exit 0 ;; esac
printf '%s:' "${JORC_CLUSTER-}" "${CONSUL_HTTP_TOKEN-}" "${CONSUL_HTTP_TOKEN_FILE-}"
for a; do printf '<%s>' "$a"; done
case "$*" in *--raw*) ;; *) echo ;; esac
case "$2 $5" in "leader n1" | "leader out") exit 0 ;; "leader n2") exit 1 ;; "leader "*) exit 5 ;; esac
[ "$2" != drpcli ] || tr '\0' '|'
`
	if err := os.WriteFile(filepath.Join(bin, "jorc"), []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		script string
		state  State
		log    string
	}{
		{"jorc_reboot", Reboot, ""},
		{"jorc_reboot new kernel", Reboot, "new kernel\n"},
		{"jorc_stop enough", Stopped, "enough\n"},
		{"jorc_not_yet 'no disk'", Pending, "no disk\n"},
		{"get_param a/b", Success, "prod:::<cluster><profile><get><--raw><--><a/b>\n"},
		{"get_param a 'x y'", Success, "prod:::<cluster><profile><get><--raw><--default><x y><--><a>\n"},
		{"effective_param a", Success, "prod:::<cluster><profile><get><--effective><--raw><--node><n1><--><a>\n"},
		{"effective_param a x", Success, "prod:::<cluster><profile><get><--effective><--raw><--node><n1><--default><x><--><a>\n"},
		{"set_param a 1", Success, "prod:::<cluster><profile><set><--><a><->\n"},
		{"set_param a 1 0", Success, "prod:::<cluster><profile><set><--ref><0><--><a><->\n"},
		{"set_param a 1 none none", Success, "prod:::<cluster><profile><set><--ref><none><--default><none><--><a><->\n"},
		{"set_param --string a 1 0", Success, "prod:::<cluster><profile><set><--string><--ref><0><--><a><->\n"},
		{"add_param --string a 1", Success, "prod:::<cluster><profile><add><--string><--><a><->\n"},
		{"add_param a -1", Success, "prod:::<cluster><profile><add><--><a><->\n"},
		{"remove_param a", Success, "prod:::<cluster><profile><remove><--><a>\n"},
		{"get_param", Failed, "usage: get_param KEY [DEFAULT]\n"},
		{"get_param a b c", Failed, "usage: get_param KEY [DEFAULT]\n"},
		{"false || get_param", Failed, "usage: get_param KEY [DEFAULT]\n"},
		{"effective_param", Failed, "usage: effective_param KEY [DEFAULT]\n"},
		{"set_param --string a", Failed, "usage: set_param [--string] KEY VALUE [REF [DEFAULT]]\n"},
		{"set_param", Failed, "usage: set_param [--string] KEY VALUE [REF [DEFAULT]]\n"},
		{"add_param", Failed, "usage: add_param [--string] KEY VALUE\n"},
		{"remove_param", Failed, "usage: remove_param KEY [REF]\n"},
		{"remove_param || echo $?", Success, "usage: remove_param KEY [REF]\n2\n"},
		{"cluster_members; : drpcli; get_param || echo $?", Success, "prod:::<cluster><members><-o><plain><--fields><Node><--cluster-filter>\nusage: get_param KEY [DEFAULT]\n2\n"},
		{"remove_param a 1", Success, "prod:::<cluster><profile><remove><--ref><1><--><a>\n"},
		{"cluster_members", Success, "prod:::<cluster><members><-o><plain><--fields><Node><--cluster-filter>\n"},
		{"cluster_members --filter 'Zone == a'", Success, "prod:::<cluster><members><-o><plain><--fields><Node><--cluster-filter><--filter><Zone == a>\n"},
		{"cluster_wait_for_workflow_complete r1 5s", Success, "prod:::<cluster><wait><--for><run=r1><--timeout><5s>\n"},
		{"cluster_wait_for_workflow_complete", Success, "prod:::<cluster><wait><--for><idle><--timeout><0>\n"},
		{"cluster_wait_for_workflow_complete '' 5s", Success, "prod:::<cluster><wait><--for><idle><--timeout><5s>\n"},
		{"is_leader >/dev/null && echo yes", Success, "yes\n"},
		{"JORC_NODE=n2; is_leader >/dev/null || echo no $?", Success, "no 1\n"},
		{"JORC_NODE=n3; is_leader >/dev/null || echo unknown $?", Success, "unknown 5\n"},
		{"drpcli -T tok -r 'a b' profiles set prod param k to -T", Success, "prod:tok::<cluster><drpcli>\n9|-r|a b|profiles|set|prod|param|k|to|-T|"},
		{"printf 'x\\ny\\n' | drpcli -T $PROFILE_TOKEN profiles add prod param to to -", Success, "prod:::<cluster><drpcli>\n7|profiles|add|prod|param|to|to|-|x\ny\n"},
		{"PROFILE_TOKEN=t1; drpcli machines list cluster/leader Eq true --slim Params", Success, "prod:t1::<cluster><drpcli>\n7|machines|list|cluster/leader|Eq|true|--slim|Params|"},
		{"drpcli -T", Failed, "drpcli: flag -T needs a value\n"},
		{"drpcli", Success, "prod:::<cluster><drpcli>\n0|"},
		{"PROFILE_TOKEN=secret; CONSUL_HTTP_TOKEN_FILE=/f; get_param a; echo ${CONSUL_HTTP_TOKEN-none}", Success, "prod:secret::<cluster><profile><get><--raw><--><a>\nnone\n"},
	} {
		include := `{{template "cluster-utilities.tmpl" .}}` + "\n"
		if strings.Contains(test.script, "drpcli") {
			include = `{{template "setup.tmpl" .}}` + "\n" + include
		}
		for _, shell := range []string{"#!/bin/sh -eu\n", "#!/bin/bash\n"} {
			h := newHost(t, Options{Environ: []string{"JORC_CLUSTER=prod"}}, config.Task{
				Name: "one", Script: shell + include + test.script + "\n", Env: map[string]string{"PATH": bin + ":" + os.Getenv("PATH")},
			})
			res, err := h.Run(t.Context(), Job{ID: "j", Workflow: "w", Origin: "run r7", Out: true})
			if err != nil || res.State != test.state || h.log("j", "") != test.log {
				t.Errorf("%s, %s: got %s, %q, %v; want %s, %q", shell, test.script, res.State, h.log("j", ""), err, test.state, test.log)
			}
		}
	}
}

// TestDrpcliWithoutSetup: with cluster-utilities.tmpl alone, drpcli fails and names the template
// that has the function; a script that takes in both keeps it.
func TestDrpcliWithoutSetup(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"#!/bin/sh\n", "#!/bin/bash\n"} {
		for include, code := range map[string]string{
			`{{template "cluster-utilities.tmpl" .}}`:                                        "2",
			`{{template "setup.tmpl" .}}` + "\n" + `{{template "cluster-utilities.tmpl" .}}`: "127",
		} {
			h := newHost(t, Options{}, config.Task{Name: "one", Script: shell + include + "\nPATH=/nonexistent\nids=$(drpcli machines list); echo \"$ids$?\"\n"})
			res := h.run()
			log := h.log("j", "")
			if res.State != Success || !strings.HasSuffix(log, "\n"+code+"\n") || strings.Contains(log, `{{template "setup.tmpl" .}}`) != (code == "2") {
				t.Errorf("%s: got %s, %q; want code %s", include, res.State, log, code)
			}
		}
	}
}

// TestDefaultParams: the params by which Digital Rebar's scripts tell members apart
// have defaults, and a param of the job or the member takes their place.
func TestDefaultParams(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ member, in, want string }{
		{`{"cluster/profile": "prod"}`, `{{.Param "cluster/leader"}} {{.Param "cluster/manager"}} {{.Param "cluster/filter"}}`, "false false Profiles Eq prod"},
		{`{"cluster/profile": "prod", "cluster/filter": null}`, `{{.Param "cluster/filter"}}`, "Profiles Eq prod"},
		{`{"cluster/profile": "prod", "cluster/filter": "Zone == a", "cluster/leader": true}`, `{{.Param "cluster/leader"}} {{.Param "cluster/filter"}}`, "true Zone == a"},
		{`{}`, `{{if .Param "cluster/leader"}}leads{{else}}follows{{end}} {{.ParamExists "cluster/filter"}} {{.ParamExists "cluster/manager"}}`, "follows false true"},
	} {
		member := &asking{params: params(t, test.member)}
		got, err := render(test.in, newFacts(t.Context(), &Options{Node: "n1", Params: member.Params}, Job{}))
		if err != nil || got != test.want {
			t.Errorf("%s: got %q, %v, want %q", test.in, got, err, test.want)
		}
	}
	if got, err := render(`{{.Param "cluster/leader"}}`, newFacts(t.Context(), &Options{Node: "n1"}, Job{})); err != nil || got != "false" {
		t.Errorf("without a cluster: got %q, %v", got, err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	good := config.Task{Name: "a", Script: `{{template "cluster-utilities.tmpl" .}}{{.Param "x"}}`}
	if err := Check([]config.Workflow{{Name: "w", Tasks: []config.Task{good}}}); err != nil {
		t.Error(err)
	}
	bad := config.Task{Name: "b", Command: []string{"echo", "{{nope}}"}, OnlyIf: []string{"{{"}, Env: map[string]string{
		"E": "{{end}}", "F": "{{if .VersionExists}}{{else}}{{range .Params}}\n{{template `cluster-utilities`}}{{end}}{{end}}",
	}}
	err := Check([]config.Workflow{{Name: "w", Tasks: []config.Task{good, bad}}})
	if err == nil {
		t.Fatal("got nil")
	}
	wantText(t, "error", err.Error(), `workflow "w": task "b": command[1]: `, "only_if[0]: ", "env.E: ", `env.F: line 2: there is no template "cluster-utilities"`)
}

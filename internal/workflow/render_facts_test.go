package workflow

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/profile"
)

// asking is a member's params, and how often they were asked for.
type asking struct {
	params profile.Params
	err    error
	asked  int
}

func (a *asking) Params(context.Context) (profile.Params, error) {
	a.asked++
	return a.params, a.err
}

func script(text string) config.Task { return config.Task{Name: "one", Script: text} }

// TestMemberParams: the member's params are below those of the job, asked for
// once, and as of the job's creation.
func TestMemberParams(t *testing.T) {
	t.Parallel()
	member := &asking{params: params(t, `{"disks": 4, "zone": "a", "cluster/profile": "prod"}`)}
	text := `echo {{.Param "disks"}} {{.Param "zone"}} {{.ParamExists "gone"}} {{.ParamExists "zone"}} {{len .Params}} {{.ClusterProfile}}` +
		`{{range $k, $v := .Params}} {{$k}}={{$v}}{{end}}; [ -e $DIR/later ] || exit 196`
	h := newHost(t, Options{Params: member.Params}, script(text), script("echo {{.Param `zone`}}"))
	job := Job{ID: "j", Workflow: "w", Params: params(t, `{"disks": 8, "cluster/profile": "evil"}`)}
	if res, err := h.Run(t.Context(), job); err != nil || res.State != Pending {
		t.Fatalf("got %+v, %v", res, err)
	}
	want(t, "asked", member.asked, 1)
	member.params = params(t, `{"disks": 5, "zone": "b"}`)
	if err := os.WriteFile(filepath.Join(h.dir, "later"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if res, err := h.Run(t.Context(), job); err != nil || res.State != Success {
		t.Fatalf("got %+v, %v", res, err)
	}
	want(t, "asked", member.asked, 1)
	line := "8 a false true 3 prod cluster/profile=evil disks=8 zone=a\n"
	want(t, "log", h.log("j", ""), line+line+"a\n")
}

// TestMemberParamsUnknown: a job whose templates need nothing of a cluster that
// cannot be asked runs; another is not created, and its templates are not to blame.
func TestMemberParamsUnknown(t *testing.T) {
	t.Parallel()
	away := errors.New("Consul is away")
	for _, test := range []struct {
		script string
		asked  int
		fails  bool
	}{
		{"true", 0, false},
		{"true # {{.Node}} {{.Param `own`}} {{.ParamExists `own`}}", 0, false},
		{"true # {{template `cluster-utilities.tmpl` .}}\n:", 1, false},
		{"true # {{.Param `other`}}", 1, true},
		{"true # {{.ParamExists `other`}}", 1, true},
		{"true # {{.Params}}", 1, true},
	} {
		member := &asking{err: away}
		h := newHost(t, Options{Params: member.Params}, script(test.script))
		_, err := h.Run(t.Context(), Job{ID: "j", Workflow: "w", Params: params(t, "own: 1")})
		want(t, test.script+": asked", member.asked, test.asked)
		want(t, test.script+": fails", err != nil, test.fails)
		if test.fails && (!errors.Is(err, away) || errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `task "one"`)) {
			t.Errorf("%s: got %v", test.script, err)
		}
	}
}

const secret = "5f3a0c1e-1111-2222-3333-444455556666"

// minting are the tokens that were asked for.
type minting struct {
	asked  []string
	secret string
	err    error
}

func (m *minting) Tokens(_ context.Context, name string, ttl time.Duration) (string, error) {
	m.asked = append(m.asked, name+":"+ttl.String())
	return m.secret, m.err
}

// TestProfileToken: one token for a job, on the disk where only its owner can
// read, and in nothing that the job prints, however it does.
func TestProfileToken(t *testing.T) {
	t.Parallel()
	m := &minting{secret: secret}
	task := script(`#!/bin/bash -x
PROFILE_TOKEN={{.ProfileToken}}
{{template "cluster-utilities.tmpl" .}}
again={{.GenerateProfileToken "prod" 600}}
[ "$PROFILE_TOKEN" = "$again" ] && [ "$X" = "$again" ] && echo $PROFILE_TOKEN | wc -c >$DIR/size
set +x
printf %s "${PROFILE_TOKEN%??????}"; printf '%s\n' "${PROFILE_TOKEN#??????????????????????????????}"
echo "the token is $PROFILE_TOKEN" >&2
exit 1
`)
	task.Env = map[string]string{"X": "{{.ProfileToken}}"}
	member := &asking{params: params(t, "cluster/profile: prod")}
	var shown strings.Builder
	h := newHost(t, Options{Params: member.Params, Tokens: m.Tokens, Output: &shown}, task)
	res := h.run()
	want(t, "state", res.State, Failed)
	want(t, "asked", strings.Join(m.asked, " "), ":2h0m0s prod:10m0s")
	want(t, "size", strings.TrimSpace(h.read("size")), "37")
	wantText(t, "log", h.log("j", ""), "set +x\n[redacted]\n", "the token is [redacted]\n")
	wantText(t, "tail", res.Tail, "the token is [redacted]\n")
	wantText(t, "why", res.Why, "the token is [redacted]")
	for what, text := range map[string]string{"log": h.log("j", ""), "tail": res.Tail, "why": res.Why, "shown": shown.String()} {
		if strings.Contains(text, secret) {
			t.Errorf("%s: the token is in %q", what, text)
		}
	}
	found := 0
	err := filepath.WalkDir(h.state, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(data), secret) {
			return err
		}
		found++
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s holds a token and is %v", path, info.Mode())
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("found %d files with the token, %v", found, err)
	}
}

// TestTokenAfterRestart: the process that continues a job redacts its tokens, too.
func TestTokenAfterRestart(t *testing.T) {
	t.Parallel()
	m := &minting{secret: secret}
	h := newHost(t, Options{Tokens: m.Tokens}, sh("one", "exit 194"), script("echo {{.ProfileToken}}"))
	want(t, "state", h.run().State, Reboot)
	h.booted = boot{ID: "second"}
	h.start(Options{}, sh("other", ""))
	want(t, "state", h.run().State, Success)
	want(t, "log", h.log("j", ""), "[redacted]\n")
}

// TestTokenOfFile: a task's own token is kept out of its log, too, and no other is made.
func TestTokenOfFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	task := script(`{{template "cluster-utilities.tmpl" .}}` + "\necho \"<$PROFILE_TOKEN>\"; cat $CONSUL_HTTP_TOKEN_FILE")
	task.TokenFile = file
	m, member := &minting{secret: "other"}, &asking{params: params(t, "cluster/profile: prod")}
	h := newHost(t, Options{Tokens: m.Tokens, Params: member.Params, Environ: []string{"PATH=/bin:/usr/bin"}}, task)
	want(t, "state", h.run().State, Success)
	want(t, "asked", len(m.asked), 0)
	wantText(t, "log", h.log("j", ""), "<>\n[redacted]\n")
}

func TestTokenErrors(t *testing.T) {
	t.Parallel()
	denied := errors.New("only callers with acl:write can: use a token_file")
	member := &asking{params: params(t, "cluster/profile: prod")}
	for _, test := range []struct {
		task    config.Task
		m       *minting
		invalid bool
		want    string
	}{
		{script("{{.ProfileToken}}"), &minting{err: denied}, true, "error calling ProfileToken: only callers with acl:write can: use a token_file"},
		{script(`{{.GenerateProfileToken "prod" 7200}}`), &minting{err: denied}, true, "error calling GenerateProfileToken: only callers with acl:write can"},
		{script("{{.ProfileToken}}"), &minting{err: consul.ErrUnreachable}, false, "Consul could not be reached"},
		{script("{{.ProfileToken}}"), nil, false, "give the task a token_file"},
		{script(`{{.GenerateProfileToken "x" 59}}`), &minting{}, true, "Consul takes 60 to 86400"},
		{script(`{{.GenerateProfileToken "x" 9223372036854775808}}`), &minting{}, true, ""},
		{script(`{{.GenerateProfileToken "x" "soon"}}`), &minting{}, true, "a token that lives soon seconds"},
		{script(`{{.GenerateProfileToken "" 60}}`), &minting{}, true, "is empty"},
		{script("#!/bin/sh {{.ProfileToken}}\n"), &minting{secret: secret}, true, "every user of the host can see"},
		{config.Task{Name: "one", Command: []string{"curl", "{{.ProfileToken}}"}}, &minting{secret: secret}, true, "every user of the host can see"},
		{config.Task{Name: "one", Command: []string{"true"}, OnlyIf: []string{"x{{.ProfileToken}}"}}, &minting{secret: secret}, true, "every user of the host can see"},
		{script(`{{.GenerateProfileToken "x" .ProfileToken}}`), &minting{secret: secret}, true, "a token that lives [redacted] seconds"},
	} {
		o := Options{Params: member.Params}
		if test.m != nil {
			o.Tokens = test.m.Tokens
		}
		h := newHost(t, o, test.task)
		_, err := h.Run(t.Context(), Job{ID: "j", Workflow: "w"})
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%v: got %v, want %q", test.task, err, test.want)
		}
		if test.invalid != errors.Is(err, ErrInvalid) && test.m != nil {
			t.Errorf("%v: got %v, want ErrInvalid %v", test.task, err, test.invalid)
		}
	}
	// A script that only prefers a token runs without one; it is not an error if ACLs are off.
	for _, m := range []*minting{{err: denied}, {}} {
		h := newHost(t, Options{Params: member.Params, Tokens: m.Tokens}, script(`{{template "cluster-utilities.tmpl" .}}`+"\necho \"<$CLUSTER_PROFILE $PROFILE_TOKEN>\""))
		want(t, "state", h.run().State, Success)
		wantText(t, "log", h.log("j", ""), "<prod >\n")
		want(t, "asked", strings.Join(m.asked, " "), ":2h0m0s")
	}
	h := newHost(t, Options{Tokens: (&minting{}).Tokens}, script("echo '<{{.ProfileToken}}>'"))
	want(t, "state", h.run().State, Success)
	want(t, "log", h.log("j", ""), "<>\n")
}

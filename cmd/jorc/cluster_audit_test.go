package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/orchestrator"
)

// audited are the changes that `cluster audit -o json` prints with args.
func audited(t *testing.T, env map[string]string, args ...string) []orchestrator.Event {
	t.Helper()
	got := jorc(t, env, append([]string{"cluster", "audit", "-o", "json"}, args...)...)
	var events []orchestrator.Event
	if err := json.Unmarshal([]byte(got.stdout), &events); err != nil || got.code != 0 {
		t.Fatalf("audit %v: %v, %+v", args, err, got)
	}
	return events
}

// lines are changes as "command|author|reason|keys", and the texts of the others.
func auditLines(events []orchestrator.Event) (all []string) {
	for _, e := range events {
		if e.Audit == nil {
			all = append(all, "unknown: "+e.Kind)
			continue
		}
		all = append(all, strings.Join([]string{e.Audit.Command, e.Audit.By, e.Audit.Reason, strings.Join(e.Audit.Keys, " ")}, "|"))
	}
	return all
}

// TestAudit: each command's change is journalled once with its author and reason, also
// when it deletes a document or when no orchestrator runs, and a direct write of a
// document of commands as a change whose author is not known. No value appears.
func TestAudit(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	env["JORC_CLUSTER"], env["USER"] = "prod", "ann"
	do := doer(t, env)
	do(result{0, "", ""}, "init", "prod", "--reason", "first")
	begin := len(audited(t, env))
	if begin == 0 {
		t.Error("without an orchestrator the audit is empty")
	}
	stop := orchestrating(t, s.Client())
	do(result{0, "", ""}, "join", "--node", "a", "--role", "db", "--role", "web", "--reason", "new disk")
	do(result{0, "", ""}, "hold", "--node", "a", "--reason", "disk")
	env["USER"] = "bob"
	do(result{0, "", ""}, "unhold", "--node", "a", "--reason", "disk is replaced")
	do(result{0, "", ""}, "profile", "set", "password", "hunter2", "--reason", "rotated")
	if got := jorc(t, env, "update", "trigger", "v1", "--reason", "release"); got.code != 0 {
		t.Fatalf("trigger: %+v", got)
	}
	want := []string{
		"jorc cluster join --node=a --role=db,web|ann|new disk|host/a/member", "jorc cluster join --node=a --role=db,web|ann|new disk|current/leaders",
		"jorc cluster hold --node=a|ann|disk|host/a/hold",
		"jorc cluster unhold --node=a|bob|disk is replaced|host/a/hold", "jorc cluster profile set password|bob|rotated|profile",
		"jorc update trigger v1|bob|release|current_version current/version",
	}
	journalled := func(n int) func() error {
		return func() error {
			all := audited(t, env)
			if len(all) != n || all[n-1].Seq == 0 {
				return fmt.Errorf("%d of %d changes: %q", len(all), n, auditLines(all))
			}
			return nil
		}
	}
	consultest.Eventually(t, "the changes to be journalled", func(context.Context) error { return journalled(begin + len(want))() })
	if got := auditLines(audited(t, env)[begin:]); !slices.Equal(got, want) {
		t.Errorf("audit:\n%q\nwant\n%q", got, want)
	}

	s.Run("kv", "put", "jorc/prod/current/control", `{"format":1,"paused":{"since":"2026-01-01T00:00:00Z","reason":"by hand"}}`)
	consultest.Eventually(t, "the direct write to be journalled", func(context.Context) error { return journalled(begin + len(want) + 1)() })
	stop()
	do(result{0, "", ""}, "resume", "--reason", "nobody knows why")
	do(result{0, "", ""}, "pause", "--reason", "lunch")
	want = append(want, "unknown: cluster_paused", "jorc cluster resume|bob|nobody knows why|current/control", "jorc cluster pause|bob|lunch|current/control")
	if got := auditLines(audited(t, env)[begin:]); !slices.Equal(got, want) {
		t.Errorf("without an orchestrator the audit is:\n%q\nwant\n%q", got, want)
	}
	orchestrating(t, s.Client())
	consultest.Eventually(t, "the changes to be journalled", func(context.Context) error { return journalled(begin + len(want))() })
	if got := auditLines(audited(t, env)[begin:]); !slices.Equal(got, want) {
		t.Errorf("the next orchestrator journalled:\n%q\nwant\n%q", got, want)
	}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"--limit", "1"}, want[8:]},
		{[]string{"--by", "ann", "--limit", "2"}, want[1:3]},
		{[]string{"--since", "1h", "--by", "bob", "--limit", "2"}, want[7:]},
		{[]string{"--by", "carol"}, nil},
	} {
		if got := auditLines(audited(t, env, test.args...)); !slices.Equal(got, test.want) {
			t.Errorf("audit %v:\n%q\nwant\n%q", test.args, got, test.want)
		}
	}
	for _, args := range [][]string{{"cluster", "audit"}, {"cluster", "events", "-o", "json"}, {"cluster", "audit", "-o", "json"}} {
		if got := jorc(t, env, args...); strings.Contains(got.stdout, "hunter2") || !strings.Contains(got.stdout, "lunch") {
			t.Errorf("jorc %v: %+v", args, got)
		}
	}
	do(result{2, "", "jorc: --since is -1s, but must be 0 or more; see 'jorc cluster audit --help'\n"}, "audit", "--since", "-1s")
}

// TestAuditFlags: the audit has the filter of a run and the policy of a rollout, and no
// value that a filter may quote of a param.
func TestAuditFlags(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a")
	env, do := f.env, doer(t, f.env)
	do(result{0, "", ""}, "join", "--node", "a", "--zone", "north")
	do(result{0, "", ""}, "profile", "set", "--node", "a", "code", "hunter2")
	for _, args := range [][]string{
		{"update", "trigger", "v1", "--canary", "1", "--max-parallel", "2", "--window", "always", "--approve-each"},
		{"cluster", "run", "say", "--id", "r", "--filter", `Zone == "north"`, "--node", "a"},
		{"cluster", "run", "say", "--id", "s", "--filter", `Params.code == "hunter2"`},
	} {
		if got := jorc(t, env, args...); got.code != 0 {
			t.Fatalf("%v: %+v", args, got)
		}
	}
	var got []string
	for _, e := range audited(t, env, "--limit", "3") {
		got = append(got, e.Audit.Command)
	}
	want := []string{
		"jorc update trigger v1 --canary=1 --max-parallel=2 --approve-each --window=always",
		`jorc cluster run say --node=a --filter='Zone == "north"' --id=r`,
		"jorc cluster run say --filter=(about params or meta, not shown) --id=s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("audit:\n%q\nwant\n%q", got, want)
	}
	for text, n := range map[string]int{"update trigger": 1, "cluster run": 2, "no such": 0} {
		if got := audited(t, env, "--command", text); len(got) != n {
			t.Errorf("audit --command %q: %q, want %d changes", text, auditLines(got), n)
		}
	}
}

// TestRecorded: a command that takes a reason records it, what is recorded exists and takes one, and so does each name
// of a command that is recorded.
func TestRecorded(t *testing.T) {
	t.Parallel()
	shown := []string{ // the reasons of these are shown while they run, and no others change the cluster
		"cluster lock",                          // at the slot
		"maintenance run", "maintenance reboot", // in the report of this host
	}
	all := tree(t)
	for path, c := range all {
		_, is := recorded["jorc "+path]
		if flagNamed(c.Flags, "reason") != nil && is == slices.Contains(shown, path) {
			t.Errorf("jorc %s takes a reason; recorded: %v", path, is)
		}
	}
	for name := range recorded {
		c := all[strings.TrimPrefix(name, "jorc ")]
		if c == nil || len(c.Subcommands) > 0 {
			t.Errorf("%s is recorded, and there is no such command", name)
		} else if !c.Hidden && flagNamed(c.Flags, "reason") == nil {
			t.Errorf("%s is recorded, and takes no reason", name)
		}
	}
	for name, verb := range updateNames() {
		_, is := recorded["jorc update "+name]
		if _, too := recorded["jorc change "+verb]; is != too {
			t.Errorf("recorded: update %s %v, change %s %v", name, is, verb, too)
		}
	}
}

// TestAuditRights: a token that may change the profile alone, as a job has one, changes
// it without a record, and the change is journalled with an unknown author.
func TestAuditRights(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	env := onServer(t, s)
	env["JORC_CLUSTER"], env["CONSUL_HTTP_TOKEN"] = "prod", s.RootToken
	do := doer(t, env)
	do(result{0, "", ""}, "init", "prod")
	begin := audited(t, env)
	if token := begin[0].Audit.By; !strings.HasPrefix(token, "token ") || strings.Contains(token, s.RootToken) {
		t.Errorf("the author is %q", token)
	}
	env["CONSUL_HTTP_TOKEN"] = strings.TrimSpace(jorc(t, env, "cluster", "profile", "token").stdout)
	do(result{0, "", ""}, "profile", "set", "a", "1")
	env["CONSUL_HTTP_TOKEN"] = s.RootToken
	if got := audited(t, env); len(got) != len(begin) {
		t.Errorf("the audit is %q", auditLines(got))
	}
}

// TestHistoryCommand: what `update history` prints, and its exit codes.
func TestHistoryCommand(t *testing.T) {
	t.Parallel()
	s, env := onShared(t)
	doer(t, env)(result{0, "", ""}, "init", "default")
	if got := jorc(t, env, "update", "history", "-o", "json"); got != (result{0, "[]\n", ""}) {
		t.Errorf("without a rollout: %+v", got)
	}
	want := result{1, "", "jorc: cluster \"default\": \"v1\": no such rollout in the history; there are no rollouts: 'jorc update history' lists them\n"}
	if got := jorc(t, env, "update", "history", "v1"); got != want {
		t.Errorf("of v1: %+v", got)
	}
	record := `{"format":1,"id":"20260102T030405Z-v1","version":"v1","previous":"v0","outcome":"done","by":"ann","reason":"release","policy":{"max_parallel":"1"},
"started":"2026-01-02T03:04:05Z","finished":"2026-01-02T03:14:05Z","counts":{"members":3,"done":2,"failed":1},
"waiting":{"hosts":2,"p50":0,"p90":60,"p99":60,"max":60},"active":{"hosts":2,"p50":30,"p90":40,"p99":40,"max":40},
"hosts":[{"node":"c","state":"failed","detail":"no disk","waiting_seconds":60,"active_seconds":540},{"node":"a","state":"done","waiting_seconds":0,"active_seconds":40}],"hosts_left":1}`
	s.Run("kv", "put", env["JORC_PREFIX"]+"/default/history/rollouts/20260102T030405Z-v1", record)
	list := "20260102T030405Z-v1\tv1\tdone\t2026-01-02T03:04:05Z\t10m0s\t3\t2\t1\t30s\t40s\tann\n"
	if got := jorc(t, env, "update", "history", "-o", "plain"); got != (result{0, list, ""}) {
		t.Errorf("list: %+v", got)
	}
	one := "id\t20260102T030405Z-v1\nversion\tv1\nprevious\tv0\noutcome\tdone\nby\tann\nreason\trelease\npolicy\tmax-parallel 1, max-failures 0\n" +
		"started\t2026-01-02T03:04:05Z\nfinished\t2026-01-02T03:14:05Z, after 10m0s\nmembers\t3: 2 done, 1 failed, 0 working, 0 waiting, 0 down\n" +
		"waiting\tp50 0s, p90 60s, p99 60s, max 60s (2 hosts)\nactive\tp50 30s, p90 40s, p99 40s, max 40s (2 hosts)\n" +
		"c\tfailed, waiting 1m0s, active 9m0s: no disk\na\tdone, waiting 0s, active 40s\nleft out\t1 host with shorter times\n"
	for _, id := range []string{"v1", "20260102T030405Z-v1"} {
		if got := jorc(t, env, "update", "history", id, "-o", "plain"); got != (result{0, one, ""}) {
			t.Errorf("%s: %+v", id, got)
		}
	}
	s.Run("kv", "put", env["JORC_PREFIX"]+"/default/history/rollouts/20260102T030406Z-v2", "xx")
	if got := jorc(t, env, "update", "history", "-o", "plain"); got.stdout != list || got.code != 0 || !strings.Contains(got.stderr, "left out") {
		t.Errorf("with a damaged one: %+v", got)
	}
}

// TestAuditFollow: `cluster audit -f` prints the last changes and each new one once, in
// order, over connections that end, answers that fail and an orchestrator that is
// replaced, and tells why it waits.
func TestAuditFollow(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	env["JORC_CLUSTER"], env["USER"] = "prod", "ann"
	do := doer(t, env)
	do(result{0, "", ""}, "init", "prod")
	stop := orchestrating(t, s.Client())
	var want []string
	made := 0
	change := func(n int) {
		t.Helper()
		for range n {
			reason := fmt.Sprintf("change %d", made)
			do(result{0, "", ""}, []string{"pause", "resume"}[made%2], "--reason", reason)
			want = append(want, reason)
			made++
		}
	}
	journalled := func() {
		t.Helper()
		consultest.Eventually(t, "the changes to be journalled", func(context.Context) error {
			if all := audited(t, env); len(all) == 0 || all[len(all)-1].Seq == 0 || all[len(all)-1].Audit.Reason != want[len(want)-1] {
				return fmt.Errorf("got %q", auditLines(all))
			}
			return nil
		})
	}
	change(4)
	journalled()
	want = want[2:]

	proxy := s.Proxy()
	away := maps.Clone(env)
	away["CONSUL_HTTP_ADDR"] = proxy.Addr
	var out, stderr output
	ctx, cancel := context.WithCancelCause(t.Context())
	h := testHost(away, nil, nil)
	h.stdout, h.stderr = &out, &stderr
	ended := make(chan int)
	go func() { ended <- run(ctx, []string{"cluster", "audit", "-f", "--limit", "2", "-o", "json"}, h) }()
	printed := func() (reasons []string) {
		t.Helper()
		for line := range strings.Lines(out.String()) {
			var e orchestrator.Event
			if err := json.Unmarshal([]byte(line), &e); err != nil || e.Audit == nil {
				t.Fatalf("%v: %s", err, line)
			}
			reasons = append(reasons, e.Audit.Reason)
		}
		return reasons
	}
	wantPrinted := func(when string) {
		t.Helper()
		consultest.Eventually(t, when, func(context.Context) error {
			if got := printed(); len(got) < len(want) {
				return fmt.Errorf("got %q, want %q", got, want)
			}
			return nil
		})
	}
	wantPrinted("the last changes")
	change(3)
	wantPrinted("new changes")

	proxy.Do(func(*http.Request) consultest.Fault { return consultest.Fault{Cut: 1} })
	change(3)
	journalled()
	consultest.Eventually(t, "the reason why it waits", func(context.Context) error {
		if stderr.String() == "" {
			return errors.New("nothing is printed")
		}
		return nil
	})
	proxy.Do(nil)
	wantPrinted("the changes of the time without a connection")

	asked := 0
	proxy.Do(func(*http.Request) consultest.Fault {
		if asked++; asked%3 == 0 {
			return consultest.Fault{Status: http.StatusInternalServerError}
		}
		return consultest.Fault{}
	})
	stop()
	change(3)
	orchestrating(t, s.Client())
	change(3)
	journalled()
	wantPrinted("the changes over a change of orchestrator, while answers fail")
	proxy.Do(nil)
	change(1)
	wantPrinted("the last change")
	cancel(signalError{syscall.SIGINT})
	if code := <-ended; code != exitSignal+int(syscall.SIGINT) {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
	if got := printed(); !slices.Equal(got, want) {
		t.Errorf("got %q,\nwant %q", got, want)
	}
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
)

// clusterLock runs "jorc cluster lock" with an environment that its command gets, too.
func clusterLock(ctx context.Context, t *testing.T, s *consultest.Server, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	h := testHost(onServer(t, s), &stdout, &stderr)
	h.environ = func() []string {
		return []string{"PATH=" + os.Getenv("PATH"), "CONSUL_HTTP_TOKEN=secret", "NOTIFY_SOCKET=/run/x", "KEPT=yes"}
	}
	code := run(ctx, append([]string{"cluster", "lock"}, args...), h)
	return result{code, stdout.String(), stderr.String()}
}

func groupsOn(t *testing.T, s *consultest.Server) *slots.Slots {
	t.Helper()
	return slots.New(kv.New(s.Client(), "jorc/default"), slots.Options{})
}

// take holds a slot of the group g for the host n1 and returns its id.
func take(t *testing.T, s *consultest.Server) (id string) {
	t.Helper()
	g := groupsOn(t, s)
	lease, err := g.Acquire(context.Background(), "g", 1, slots.Holder{Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) }) // some tests unlock it
	v, _, err := g.Show(t.Context(), "g")
	if err != nil || len(v.Holders) != 1 {
		t.Fatalf("Show = %+v, %v", v, err)
	}
	return v.Holders[0].ID
}

func TestLock(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	for _, test := range []struct {
		name, args string
		want       result
	}{
		// A tab is a space within an argument.
		{"done", "g -- echo a b", result{0, "a b\n", ""}},
		{"flags in between", "--max 2 g --timeout=1m -- sh -c exit\t7", result{7, "", ""}},
		{"both streams", "g -- sh -c echo\tout;echo\terr>&2", result{0, "out\n", "err\n"}},
		{"signal", "g -- sh -c kill\t-KILL\t$$", result{137, "", ""}},
		{"environment", "g -- sh -c echo\t$KEPT$CONSUL_HTTP_TOKEN$NOTIFY_SOCKET", result{0, "yes\n", ""}},
		{"with its token", "g --pass-token -- sh -c echo\t$CONSUL_HTTP_TOKEN", result{0, "secret\n", ""}},
		{"not found", "g -- jorc-no-such-program", result{127, "", "jorc: jorc-no-such-program: command not found\n"}},
		{"not a program", "g -- /etc/passwd", result{126, "", "jorc: /etc/passwd: command cannot be run: permission denied\n"}},
		{"no group", "-- true", result{2, "", "jorc: missing argument GROUP; see 'jorc cluster lock --help'\n"}},
		{"blank group", "\t -- true", result{2, "", "jorc: GROUP must not be blank; see 'jorc cluster lock --help'\n"}},
		{"no command", "g", result{2, "", "jorc: missing COMMAND after --; see 'jorc cluster lock --help'\n"}},
		{"limit", "g --max -1 -- true", result{2, "", "jorc: --max is -1, but must be 0 or more; see 'jorc cluster lock --help'\n"}},
		{"name", "a/b -- true", result{2, "", "jorc: slot group \"a/b\" cannot be a name: '/' at position 2 is not allowed: a name is one segment of a key\n"}},
	} {
		fields := strings.Split(test.args, " ")
		for i := range fields {
			fields[i] = strings.ReplaceAll(fields[i], "\t", " ")
		}
		if got := clusterLock(t.Context(), t, s, fields...); got != test.want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", test.name, got, test.want)
		}
	}
	if v, _, err := groupsOn(t, s).Show(t.Context(), "g"); err != nil || len(v.Holders)+len(v.Queue) != 0 || v.Max != 2 {
		t.Errorf("Show = %+v, %v; want nobody in two slots", v, err)
	}
}

func TestLockTimesOut(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	g := groupsOn(t, s)
	take(t, s)
	want := result{124, "", "jorc: slot group \"g\": no slot was free in 50ms; 'jorc cluster slots g' shows the holders\n"}
	if got := clusterLock(t.Context(), t, s, "g", "--timeout", "50ms", "--", "true"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got := clusterLock(t.Context(), t, s, "g", "--http-addr=127.0.0.1:1", "--timeout", "50ms", "--node", "n", "--", "true")
	if got.code != exitUnreachable {
		t.Errorf("without Consul: %+v, want exit 3", got)
	}
	if v, _, err := g.Show(t.Context(), "g"); err != nil || len(v.Queue) != 0 {
		t.Errorf("Show = %+v, %v; want that nobody waits", v, err)
	}
}

// TestLockLost takes the slot away by hand: the command is stopped with its children.
func TestLockLost(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	file := filepath.Join(t.TempDir(), "pid")
	ended := make(chan result)
	go func() {
		ended <- clusterLock(context.Background(), t, s, "g", "--node", "n1", "--reason", "why", "--",
			"sh", "-c", "sleep 1000 & echo $! >"+file+".new; mv "+file+".new "+file+"; wait")
	}()
	consultest.Eventually(t, "the command", func(context.Context) error { _, err := os.Stat(file); return err })
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	env := onServer(t, s)
	if got := jorc(t, env, "cluster", "slots", "-o", "plain"); got != (result{0, "g\t1\t1\t0\n", ""}) {
		t.Errorf("slots: %+v", got)
	}
	got := jorc(t, env, "cluster", "slots", "g", "-o", "plain")
	if cells := strings.Split(strings.TrimSpace(got.stdout), "\t"); len(cells) != 5 || cells[0] != "holds" || cells[1] != "n1" || cells[4] != "why" {
		t.Errorf("slots g: %+v", got)
	}
	if got := jorc(t, env, "cluster", "unlock", "g", "n1"); got.code != 0 || !strings.HasPrefix(got.stdout, "n1/") || got.stderr != "" {
		t.Errorf("unlock: %+v", got)
	}
	if got := <-ended; got.code != exitStopped || !strings.Contains(got.stderr, "lock lost") {
		t.Errorf("lock: %+v, want exit 6", got)
	}
	consultest.Eventually(t, "the end of the child", func(context.Context) error {
		out, err := exec.Command("ps", "-o", "stat=", "-p", strings.TrimSpace(string(data))).Output()
		if err == nil && !strings.HasPrefix(string(out), "Z") {
			return fmt.Errorf("process %s is %s", data, out)
		}
		return nil
	})
	want := result{0, "", "jorc: n1 has no slot and no place in slot group \"g\"; nothing was changed\njorc: host \"n1\": no such host; hosts: " + s.Node + "\n"}
	if got := jorc(t, env, "cluster", "unlock", "g", "n1"); got != want {
		t.Errorf("unlock again: %+v", got)
	}
}

// TestLockInterrupted: a signal ends the command and gives the slot back.
func TestLockInterrupted(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	file := filepath.Join(t.TempDir(), "started")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan result)
	go func() { ended <- clusterLock(ctx, t, s, "g", "--", "sh", "-c", "touch "+file+"; sleep 1000") }()
	consultest.Eventually(t, "the command", func(context.Context) error { _, err := os.Stat(file); return err })
	cancel(signalError{syscall.SIGTERM})
	if got := <-ended; got.code != exitSignal+int(syscall.SIGTERM) {
		t.Errorf("got %+v, want exit 143", got)
	}
	if v, _, err := groupsOn(t, s).Show(t.Context(), "g"); err != nil || len(v.Holders) != 0 {
		t.Errorf("Show = %+v, %v; want nobody", v, err)
	}
}

func TestSlotsOfNobody(t *testing.T) {
	t.Parallel()
	_, env := onShared(t)
	do := doer(t, env)
	do(result{0, "[]\n", ""}, "slots", "-o", "json")
	do(result{1, "", "jorc: slot group \"g\": no such group; there are no groups\n"}, "slots", "g")
	do(result{2, "", "jorc: missing arguments GROUP and NODE[/ID]; see 'jorc cluster unlock --help'\n"}, "unlock", "g")
	for _, blank := range []string{" ", "\t"} {
		do(result{2, "", "jorc: GROUP must not be blank; see 'jorc cluster slots --help'\n"}, "slots", blank)
		do(result{2, "", "jorc: GROUP must not be blank; see 'jorc cluster unlock --help'\n"}, "unlock", blank, "n")
	}
	do(result{2, "", "jorc: an argument must not be empty: leave it out or give a name; see 'jorc cluster slots --help'\n"}, "slots", "")
	do(result{2, "", "jorc: GROUP must not be blank; see 'jorc cluster unlock --help'\n"}, "unlock", "", "n")
	do(result{2, "", "jorc: \"n/\" must be NODE or NODE/ID; see 'jorc cluster unlock --help'\n"}, "unlock", "g", "n/")
}

// TestUnlockAnswers: revoked slots are printed for scripts, and one
// group of a newer format hides no other.
func TestUnlockAnswers(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	do := doer(t, onServer(t, s))
	id := take(t, s)
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/default/slots/group/a", Value: []byte(`{"format":9}`)}); err != nil {
		t.Fatal(err)
	}
	newer := "jorc: slot group \"a\": read key \"jorc/default/slots/group/a\": document of a newer format: 9; this jorc reads up to 1: upgrade jorc on this host\n"
	do(result{1, "g\t1\t1\t0\n", newer}, "slots", "-o", "plain")
	do(result{0, "[\n  \"n1/" + id + "\"\n]\n", ""}, "unlock", "g", "n1", "-o", "json")
	do(result{0, "[]\n", "jorc: n1 has no slot and no place in slot group \"g\"; nothing was changed\njorc: host \"n1\": no such host; hosts: " + s.Node + "\n"}, "unlock", "g", "n1", "-o", "json")
}

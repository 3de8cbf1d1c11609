package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
)

func TestExcess(t *testing.T) {
	t.Parallel()
	now := time.Now()
	jobs := func() []finished {
		return []finished{{"c", "w", now.Add(-3 * time.Hour), 10}, {"a", "w", now.Add(-time.Hour), 10}, {"b", "w", now.Add(-2 * time.Hour), 10}}
	}
	// Of two workflows one runs often; that pushes its own jobs out.
	mixed := []finished{{"w1", "w", now.Add(-9 * time.Hour), 10}}
	for i := range 60 {
		mixed = append(mixed, finished{fmt.Sprint(i), "validate", now.Add(-time.Duration(i) * time.Minute), 10})
	}
	if got := strings.Join(Retention{}.withDefaults().excess(mixed, now), " "); got != "50 51 52 53 54 55 56 57 58 59" {
		t.Errorf("two workflows: got %q, want the oldest of the one with 60", got)
	}
	for _, test := range []struct {
		keep Retention
		want string
	}{
		{Retention{Jobs: 3, Age: 4 * time.Hour, Bytes: 30}, ""},
		{Retention{Jobs: 2, Age: -1, Bytes: -1}, "c"},
		{Retention{Jobs: -1, Age: 90 * time.Minute, Bytes: -1}, "b c"},
		{Retention{Jobs: -1, Age: -1, Bytes: 25}, "c"},
		{Retention{Jobs: -1, Age: -1, Bytes: 5}, "a b c"},
		{Retention{Jobs: -1, Age: -1, Bytes: -1}, ""},
		{Retention{}.withDefaults(), ""},
	} {
		if got := strings.Join(test.keep.excess(jobs(), now), " "); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.keep, got, test.want)
		}
	}
}

// TestRetention: finished jobs go, open and damaged ones stay.
func TestRetention(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	later := config.Task{Name: "one", Command: []string{"sh", "-c", "exit {{.Param `code`}}"}}
	h := newHost(t, Options{Keep: Retention{Jobs: 2}}, later)
	h.now = func() time.Time { now = now.Add(time.Second); return now }
	run := func(id, code string) {
		t.Helper()
		if _, err := h.Run(t.Context(), Job{ID: id, Workflow: "w", Params: params(t, "code: "+code)}); err != nil {
			t.Fatal(err)
		}
	}
	run("open", "196")
	run("damaged", "0")
	if err := os.WriteFile(filepath.Join(h.jobs, "damaged", recordFile), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		run(fmt.Sprint(i), "0")
	}
	all, err := h.Jobs()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, j := range all {
		ids = append(ids, j.ID+":"+string(j.State))
	}
	want(t, "jobs", strings.Join(ids, " "), "4:success 3:success 2:success open:pending damaged:damaged")
}

// TestDamaged: a job whose files hold invalid data is reported, and hinders no other.
func TestDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(map[string]any){
		"newer":      func(m map[string]any) { m["format"] = 99 },
		"no tasks":   func(m map[string]any) { m["tasks"] = []any{} },
		"task index": func(m map[string]any) { m["task"] = 7 },
		"other job":  func(m map[string]any) { m["id"] = "other" },
		"types":      func(m map[string]any) { m["tasks"] = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, Options{}, sh("one", "exit 196"))
			h.run()
			file := filepath.Join(h.jobs, "j", recordFile)
			if name == "other job" {
				file = filepath.Join(h.jobs, "j", specFile)
			}
			var doc map[string]any
			if err := readJSON(file, &doc); err != nil {
				t.Fatal(err)
			}
			damage(doc)
			data, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			if err := durable.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Run(t.Context(), Job{ID: "j", Workflow: "w"}); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "remove "+h.jobs) {
				t.Errorf("got %v, want ErrDamaged with its remedy", err)
			}
			if open, err := h.Open(); err != nil || len(open) != 0 {
				t.Errorf("open: got %+v, %v", open, err)
			}
			if res, err := h.Run(t.Context(), Job{ID: "k", Workflow: "w"}); err != nil || res.State != Pending {
				t.Errorf("another job: got %+v, %v", res, err)
			}
		})
	}
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	task := sh("one", "exit 1")
	task.Retries = maxHistory
	res := newHost(t, Options{}, task).run()
	want(t, "state", res.State, Failed)
	want(t, "history", len(res.History), maxHistory)
	want(t, "last", res.History[maxHistory-1].State, string(Failed))
}

func TestLogStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	flood := sh("two", "head -c 100000 /dev/zero; echo the end; exit 1")
	h := newHost(t, Options{Node: "a/b", Store: DirStore{dir}, MaxLog: 1}, sh("one", "echo fine"), flood)
	res := h.run()
	path := filepath.Join(dir, "a_b", "j", "02-two.log")
	want(t, "url", res.LogURL, "file://"+path)
	data, err := os.ReadFile(path)
	if err != nil || string(data) != h.log("j", "two") || !strings.HasSuffix(string(data), "the end\n") {
		t.Errorf("stored: got %d bytes, %v", len(data), err)
	}
	for _, where := range []string{filepath.Dir(path), filepath.Join(h.jobs, "j")} {
		entries, err := os.ReadDir(where)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				t.Errorf("%s was left behind in %s", e.Name(), where)
			}
		}
	}

	// Trouble with the store changes nothing else.
	h = newHost(t, Options{Store: DirStore{"/dev/null/x"}}, sh("one", "exit 3"))
	res = h.run()
	want(t, "state", res.State, Failed)
	want(t, "why", res.Why, "exit code 3")
	want(t, "url", res.LogURL, "")

	for _, name := range []string{"../x", "/x", ""} {
		if _, err := (DirStore{dir}).Put(t.Context(), name, path); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (DirStore{dir}).Put(ctx, "x", path); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's end", err)
	}
}

func TestWriteLog(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{}, sh("one", "echo 1"), sh("two", "echo 2 >&2"))
	h.run()
	want(t, "all", h.log("j", ""), "1\n2\n")
	want(t, "one", h.log("j", "two"), "2\n")
	for bad, want := range map[[2]string]error{{"x", ""}: ErrNoJob, {"j", "three"}: ErrNoTask, {"..", ""}: ErrInvalid} {
		if err := h.WriteLog(&strings.Builder{}, bad[0], bad[1]); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", bad, err, want)
		}
	}
}

func TestBootSame(t *testing.T) {
	t.Parallel()
	now := currentBoot()
	if now.ID == "" || now.Init == "" {
		t.Errorf("got %+v, want to know when this host was started", now)
	}
	for _, test := range []struct {
		a, b boot
		want bool
	}{
		{now, now, true},
		{boot{"a", "1"}, boot{"b", "1"}, false},
		{boot{"a", "1"}, boot{"a", "2"}, false},
		{boot{"a", ""}, boot{"a", "2"}, true},
		{boot{}, boot{"a", "2"}, true},
	} {
		if got := test.a.same(test.b); got != test.want {
			t.Errorf("%v and %v: got %v, want %v", test.a, test.b, got, test.want)
		}
	}
}

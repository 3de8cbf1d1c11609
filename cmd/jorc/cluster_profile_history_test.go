package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestProfileHistory: who changed the profile, from what to what; a change is undone unless
// something of it has changed since; secret values are nowhere.
func TestProfileHistory(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "ID  TIME  BY  COMMAND  REASON  WHAT\n", ""}, "profile", "history")
	do(result{0, "", ""}, "profile", "set", "workers", "4", "--reason", "more load")
	do(result{0, "", ""}, "profile", "schema", "set", "pw", writeFile(t, "schema.json", `{"secret": true}`))
	do(result{0, "", ""}, "profile", "set", "pw", "hunter2")
	do(result{0, "", ""}, "profile", "set", "pw", "hunter3")
	do(result{0, "", ""}, "profile", "set", "workers", "8")
	do(result{0, "", ""}, "meta", "set", "icon", "db")

	text := func(args ...string) string {
		t.Helper()
		got := jorc(t, env, append([]string{"cluster", "profile", "history"}, args...)...)
		if got.code != exitOK || strings.Contains(got.stdout+got.stderr, "hunter") {
			t.Fatalf("%v: %+v", args, got)
		}
		return got.stdout
	}
	all := text()
	for _, want := range []string{"more load", "jorc cluster profile set workers", "workers added: 4", "workers: 4 → 8", "pw added: secret ", "meta icon added: \"db\""} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing in\n%s", want, all)
		}
	}
	if lines := strings.Split(strings.TrimSpace(text("workers")), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[2], "5 ") {
		t.Errorf("the history of workers: %q", lines)
	}
	if lines := strings.Split(strings.TrimSpace(text("--limit", "1")), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[1], "6 ") {
		t.Errorf("the last change: %q", lines)
	}
	var list []struct {
		ID    uint64
		By    string
		Items []struct {
			Key       string
			Secret    bool
			OldDigest string `json:"old_digest"`
			Old, New  any
		}
	}
	if err := json.Unmarshal([]byte(text("pw", "-o", "json")), &list); err != nil || len(list) != 3 || list[2].ID != 4 || !list[2].Items[0].Secret ||
		list[2].Items[0].Old != nil || list[2].Items[0].New != nil || list[2].Items[0].OldDigest == "" {
		t.Errorf("the history of pw: %+v, %v", list, err)
	}

	do(result{4, "", "jorc: change 1 is not reverted: \"workers\" changed since, by change 5: revert that first, or set the values themselves\n"}, "profile", "revert", "1")
	do(result{0, "", ""}, "profile", "revert", "5", "--reason", "too many")
	do(result{0, "4\n", ""}, "profile", "get", "workers")
	do(result{0, "", "jorc: nothing to do: all of change 5 is as it was before it\n"}, "profile", "revert", "5")
	do(result{0, "", ""}, "profile", "revert", "7")
	do(result{0, "8\n", ""}, "profile", "get", "workers")
	do(result{1, "", "jorc: change 4 cannot be reverted: \"pw\" is secret, and the history has only the digest of its former value; set that yourself\n"}, "profile", "revert", "4")
	do(result{1, "", "jorc: change 99 of the profile: not in the history: it has 1 to 8; 'jorc cluster profile history' lists them\n"}, "profile", "revert", "99")
	do(result{2, "", "jorc: ID: \"x\" is no number of a change; 'jorc cluster profile history' lists them; see 'jorc cluster profile revert --help'\n"}, "profile", "revert", "x")
	if got := jorc(t, env, "cluster", "profile", "history", "worker"); got.code != exitFailed || !strings.Contains(got.stderr, `did you mean "workers"?`) {
		t.Errorf("a param that does not exist: %+v", got)
	}
	if got := jorc(t, env, "cluster", "audit"); !strings.Contains(got.stdout, "jorc cluster profile revert 5") || !strings.Contains(got.stdout, "too many") {
		t.Errorf("the audit: %+v", got)
	}

	client := s.Client()
	pair, _, err := client.KVGet(t.Context(), "jorc/default/profile", consul.Query{})
	if err != nil {
		t.Fatal(err)
	}
	pair.Value = []byte(strings.Replace(string(pair.Value), `"workers":8`, `"workers":9`, 1))
	if err := client.KVPut(t.Context(), pair); err != nil {
		t.Fatal(err)
	}
	const since = "jorc: the profile was changed since the last recorded change, by a write to Consul's KV"
	if got := jorc(t, env, "cluster", "profile", "history"); got.code != exitOK || !strings.HasPrefix(got.stderr, since) {
		t.Errorf("after a direct write: %+v", got)
	}
	if got := jorc(t, env, "cluster", "profile", "revert", "8"); got.code != exitConflict || !strings.Contains(got.stderr, "by a write that the history does not have") {
		t.Errorf("revert after a direct write: %+v", got)
	}
	if stored := fmt.Sprint(keysBelow(t, s, "jorc/default/audit/")); strings.Contains(stored, "hunter") {
		t.Errorf("a secret value is stored: %s", stored)
	}
}

// keysBelow are the values of the keys below a prefix.
func keysBelow(t *testing.T, s *consultest.Server, prefix string) (values []string) {
	t.Helper()
	pairs, _, err := s.Client().KVList(t.Context(), prefix, consul.Query{})
	if err != nil || len(pairs) == 0 {
		t.Fatal(pairs, err)
	}
	for _, p := range pairs {
		values = append(values, string(p.Value))
	}
	return values
}

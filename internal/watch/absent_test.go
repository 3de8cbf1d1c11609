package watch_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/watch"
)

// absentKeys is an engine whose template uses many keys that do not exist, behind a proxy
// that counts what is asked.
type absentKeys struct {
	*host
	engine *watch.Engine
	proxy  *consultest.Proxy
	names  []string
	values map[string]string

	except string // the path of groups that are not counted

	mu         sync.Mutex
	lists      int    // of the keys of one group
	unindexed  int    // of these, the ones that did not block
	namesAsked int    // of the family's names
	token      string // of the last of these
	writes     int
}

// family is the prefix of the keys' names.
const family = "app/absent-"

// absentNames are names of which some are the prefix of others.
func absentNames() []string {
	names := []string{family, family + "1", family + "21"}
	for i := range 300 {
		names = append(names, fmt.Sprintf("%s%03d", family, i))
	}
	return names
}

func newAbsentKeys(t *testing.T, s *consultest.Server, names []string, edit func(*absentKeys, *config.Consul), more ...string) *absentKeys {
	t.Helper()
	a := &absentKeys{host: newHost(t, s), proxy: s.Proxy(), names: names, values: map[string]string{}}
	a.proxy.Do(func(r *http.Request) consultest.Fault {
		a.mu.Lock()
		defer a.mu.Unlock()
		switch q := r.URL.Query(); {
		case q.Has("keys"):
			a.namesAsked++
			a.token = r.Header.Get("X-Consul-Token")
		case q.Has("recurse") && (a.except == "" || !strings.HasPrefix(r.URL.Path, a.except)):
			a.lists++
			a.token = r.Header.Get("X-Consul-Token")
			if !q.Has("index") {
				a.unindexed++
			}
		}
		return consultest.Fault{}
	})
	conf := a.proxy.Config()
	if edit != nil {
		edit(a, &conf)
	}
	a.through(conf)
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintf(&text, "{{ keyOrDefault %q \"none\" }}\n", name)
	}
	templates := []config.Template{a.tmpl("all", text.String())}
	for i, contents := range more {
		templates = append(templates, a.tmpl(fmt.Sprint("more", i), contents))
	}
	a.engine, _ = a.run(templates...)
	a.wantAll()
	return a
}

func (a *absentKeys) set(name, value string) {
	a.t.Helper()
	a.put(name, value)
	a.values[name] = value
}

func (a *absentKeys) remove(name string) {
	a.t.Helper()
	if _, err := a.client.KVDeleteCAS(context.Background(), name, a.index(name)); err != nil {
		a.t.Fatal(err)
	}
	delete(a.values, name)
}

func (a *absentKeys) index(name string) uint64 {
	a.t.Helper()
	pair, _, err := a.client.KVGet(context.Background(), name, consul.Query{})
	if err != nil || pair == nil {
		a.t.Fatal(pair, err)
	}
	return pair.ModifyIndex
}

// wantAll waits until the file has all values.
func (a *absentKeys) wantAll() {
	a.t.Helper()
	consultest.Eventually(a.t, "all values", func(context.Context) error {
		text, err := os.ReadFile(a.path("all"))
		if err != nil {
			return err
		}
		for i, got := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
			if want := cmp.Or(a.values[a.names[i]], "none"); got != want {
				return fmt.Errorf("%s: got %q, want %q", a.names[i], got, want)
			}
		}
		return nil
	})
}

// write writes other keys, which end every query on a prefix without keys.
func (a *absentKeys) write(n int) {
	a.t.Helper()
	for range n {
		a.writes++
		a.put("other", fmt.Sprint(a.writes))
	}
}

// counted returns the requests that the engine has made.
func (a *absentKeys) counted() (lists, unindexed, names int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lists, a.unindexed, a.namesAsked
}

// settle waits until no group asks for its keys while others write, for longer than a group
// pauses between two queries.
func (a *absentKeys) settle() {
	a.t.Helper()
	consultest.Eventually(a.t, "groups without keys to ask nothing", func(context.Context) error {
		before, _, _ := a.counted()
		a.write(300)
		if after, _, names := a.counted(); after != before || names == 0 {
			return fmt.Errorf("%d lists of groups, names were asked for %d times", after-before, names)
		}
		return nil
	})
}

// waitShared waits until no group of several keys has a query of its own.
func (a *absentKeys) waitShared() {
	a.t.Helper()
	a.proxy.MostBlocking()
	consultest.Eventually(a.t, "one query", func(context.Context) error {
		a.write(1)
		most := a.proxy.MostBlocking()
		for path, n := range most {
			if name := strings.TrimPrefix(path, "/v1/kv/"); n > 0 && name != family && !slices.Contains(a.names, name) {
				return fmt.Errorf("%v", most)
			}
		}
		return nil
	})
}

// TestAbsentKeysShareAQuery: while others write, groups without keys ask Consul nothing, and a
// key that appears is in the file, also when it is deleted and appears again.
func TestAbsentKeysShareAQuery(t *testing.T) {
	t.Parallel()
	a := newAbsentKeys(t, consultest.Start(t), absentNames(), nil, `{{ keyOrDefault "`+family+`1\x01" "none" }}`)
	a.settle()
	for i, name := range a.names {
		if i%40 != 2 {
			continue
		}
		for turn := range 3 {
			a.write(3)
			a.set(name, fmt.Sprint(turn))
			a.wantAll()
			a.set(name, fmt.Sprint(turn, " again"))
			a.wantAll()
			a.remove(name)
			a.wantAll()
		}
	}
	a.settle()
	for i := len(a.names) - 1; i >= 0; i-- {
		a.write(1)
		a.set(a.names[i], "last")
	}
	a.wantAll()
	for _, name := range a.names {
		a.remove(name)
	}
	a.wantAll()
	a.settle()
	wantStatus(t, a.engine, "more0", "failed", func(s watch.Status) bool { return s.Writes == 0 })
}

// TestAbsentKeysBesideManyOthers: where the names of other keys are many, the groups ask themselves,
// and the names are not read again and again.
func TestAbsentKeysBesideManyOthers(t *testing.T) {
	t.Parallel()
	a := newAbsentKeys(t, consultest.Start(t), absentNames(), nil)
	a.settle()
	var ops consul.TxnOps
	for i := range 250 {
		ops = append(ops, &consul.TxnOp{KV: &consul.KVTxnOp{Verb: consul.KVSet, Key: fmt.Sprintf("%sx-%03d-%s", family, i, strings.Repeat("x", 200))}})
		if len(ops) == 50 {
			a.txn(ops)
			ops = nil
		}
	}
	a.writeUntilListed(10 * 40)
	_, _, before := a.counted()
	a.writeUntilListed(10 * 40)
	if _, _, after := a.counted(); after != before {
		t.Errorf("names were asked for %d times more; want none", after-before)
	}
	for i, name := range a.names {
		if i%20 == 0 {
			a.set(name, "1")
		}
	}
	a.wantAll()
}

// writeUntilListed writes other keys until groups have asked n more times.
func (a *absentKeys) writeUntilListed(n int) {
	a.t.Helper()
	before, _, _ := a.counted()
	consultest.Eventually(a.t, "queries of groups", func(context.Context) error {
		a.write(1)
		if lists, _, _ := a.counted(); lists < before+n {
			return fmt.Errorf("%d of %d", lists-before, n)
		}
		return nil
	})
}

// TestAbsentKeysWithoutACommonName: groups whose names have nothing in common ask themselves.
func TestAbsentKeysWithoutACommonName(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 150 {
		names = append(names, fmt.Sprintf("%c%c%d", 'a'+i*7%26, 'a'+i*11%26, i))
	}
	a := newAbsentKeys(t, consultest.Start(t), names, nil)
	for i, name := range names {
		a.write(1)
		a.set(name, "1")
		if i%10 == 0 {
			a.wantAll()
		}
	}
	a.wantAll()
	for _, name := range names {
		a.remove(name)
	}
	a.wantAll()
	if _, _, got := a.counted(); got > 0 {
		t.Errorf("names below the root were asked for %d times", got)
	}
}

// TestAbsentKeysAndRights: what a token may not see is not absent, however a group learns of its
// keys, and a right that is granted later is noticed.
func TestAbsentKeysAndRights(t *testing.T) {
	t.Parallel()
	const root = "00000000-1111-2222-3333-444444444444"
	for name, test := range map[string]struct {
		listPolicy bool
		rules      string
		shared     bool // the token may have the names
	}{
		"read":         {false, `key_prefix "` + family + `" { policy = "read" }`, true},
		"list":         {true, `key_prefix "` + family + `" { policy = "list" }`, true},
		"list of some": {true, `key_prefix "` + family + `0" { policy = "list" } key_prefix "` + family + `1" { policy = "list" } key_prefix "` + family + `2" { policy = "list" }`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := consultest.Start(t, consultest.WithACL(), consultest.WithConfig(map[string]any{"acl": map[string]any{
				"enabled": true, "default_policy": "deny", "enable_key_list_policy": test.listPolicy,
				"tokens": map[string]any{"initial_management": root, "agent": root, "dns": root},
			}}))
			file := filepath.Join(t.TempDir(), "token")
			use := func(rules string) (token string) {
				t.Helper()
				token = s.NewToken(rules)
				if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
					t.Fatal(err)
				}
				return token
			}
			const secret = family + "100-secret"
			hidden := test.rules + ` key "` + secret + `" { policy = "deny" }`
			use(hidden)
			names := absentNames()[3:]
			a := newAbsentKeys(t, s, names, func(a *absentKeys, c *config.Consul) {
				a.except = "/v1/kv/" + family + "10" // of the secret's group, which is asked for again and again
				c.Token, c.TokenFile = "", file
			}, `{{ keyOrDefault "`+secret+`" "none" }}`)
			settle := a.settle
			if !test.shared {
				settle = func() { a.writeUntilListed(200) }
			}
			settle()
			denied := func(s watch.Status) bool { return s.Writes == 0 && mentions(s.Waiting, "denied") }
			wantStatus(t, a.engine, "more0", "denied", denied)
			a.put(secret, "s")
			a.set(names[100], "1")
			a.set(names[200], "1")
			a.wantAll()
			wantStatus(t, a.engine, "more0", "denied", denied)
			settle()

			without := use(`key_prefix "x" { policy = "read" }`)
			a.put(names[50], "2")
			consultest.Eventually(t, "a query with the token without rights", func(context.Context) error {
				a.write(1)
				a.mu.Lock()
				defer a.mu.Unlock()
				if a.token != without {
					return errNotYet
				}
				return nil
			})
			a.wantAll() // what is lost with the rights stays
			a.values[names[50]] = "2"
			use(test.rules)
			a.wantAll()
			a.want("more0", "s")
			if !test.listPolicy { // otherwise the names were refused, and are not asked for at once
				settle()
			}
		})
	}
}

// TestAbsentKeysAfterALoss: a key that appears after Consul lost its state, or was away, is in the
// file. The groups' indexes are then above Consul's: they read without one.
func TestAbsentKeysAfterALoss(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, s *consultest.Server, snapshot string){
		"restored": func(_ *testing.T, s *consultest.Server, snapshot string) { s.Run("snapshot", "restore", snapshot) },
		"empty": func(_ *testing.T, s *consultest.Server, _ string) {
			s.Stop()
			s.Wipe()
			s.Restart()
		},
		"killed": func(_ *testing.T, s *consultest.Server, _ string) {
			s.Kill()
			s.Restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := consultest.Start(t, consultest.Persistent())
			snapshot := filepath.Join(t.TempDir(), "snapshot")
			h := newHost(t, s)
			h.put(family+"x", "not used") // the index of the names is that of this key
			s.Run("snapshot", "save", snapshot)
			for i := range 300 {
				h.put("other", fmt.Sprint("filler", i))
			}
			a := newAbsentKeys(t, s, absentNames()[3:], nil)
			a.settle()
			a.waitShared()
			lose(t, s, snapshot)
			a.settle()
			a.waitShared()
			_, unindexed, _ := a.counted()
			a.set(a.names[20], "1")
			a.wantAll()
			if _, now, _ := a.counted(); now == unindexed {
				t.Error("the group of the key read it with an index from before")
			}
			for i, name := range a.names {
				if i%30 == 0 {
					a.set(name, "2")
				}
			}
			a.wantAll()
		})
	}
}

package fleet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/profile"
)

// kept is a keeper that runs, and what it logs.
type kept struct {
	*fleet.RecordSync
	stop func()

	mu  sync.Mutex
	log bytes.Buffer
}

func (k *kept) text() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.log.String()
}

func (k *kept) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.log.Write(p)
}

// warnings are the lines of k's log that warn.
func (k *kept) warnings() (all []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for line := range strings.Lines(k.log.String()) {
		if strings.Contains(line, "[WARN]") {
			all = append(all, line)
		}
	}
	return all
}

func keeping(t *testing.T, c *fleet.Cluster, name string, files cluster.Record) *kept {
	t.Helper()
	k := &kept{}
	k.RecordSync = c.NewRecordSync(fleet.RecordSyncOptions{Node: "n", Name: name, Files: files, Log: hclog.New(&hclog.LoggerOptions{Output: k})})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = k.Run(ctx) }) // nil
	k.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(k.stop)
	return k
}

func wantKeeper(t *testing.T, c *fleet.Cluster, want string) {
	t.Helper()
	consultest.Eventually(t, want+" to keep the record", func(ctx context.Context) error {
		r, err := c.Record(ctx, "n")
		if err == nil && r.Keeper != want {
			err = errors.New(r.Keeper)
		}
		return err
	})
}

// TestRivals: of two agents with one node name each says so, and names the
// other, though their files are the same; then they write nothing more.
func TestRivals(t *testing.T) {
	t.Parallel()
	c, _ := clustertest.Initialized(t)
	first := keeping(t, c, "a:/x", cluster.Record{Zone: "r1"})
	wantKeeper(t, c, "a:/x")
	second := keeping(t, c, "b:/x", cluster.Record{Zone: "r1"})
	for _, k := range []struct {
		*kept
		other string
	}{{first, "b:/x"}, {second, "a:/x"}} {
		consultest.Eventually(t, "the other to be named", func(context.Context) error {
			if other, seen := k.OtherAgent(); other != k.other || seen.IsZero() {
				return errors.New(other)
			}
			return nil
		})
		if w := k.warnings(); len(w) != 1 || !strings.Contains(w[0], "other="+k.other) {
			t.Errorf("warnings %q, want one of %s", w, k.other)
		}
	}
	wantKeeper(t, c, "b:/x") // the last to take it
	second.stop()
	clustertest.Join(t, c, "n", "wrong")
	wantRecord(t, c, "n", `{"zone":"r1","keeper":"b:/x"}`) // corrected by the first, which takes it back later only
}

// TestReplacedAgent: an agent that takes the place of another, an import and a
// restored record are not rivals.
func TestReplacedAgent(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	old := keeping(t, c, "a:/x", cluster.Record{Zone: "r1"})
	wantKeeper(t, c, "a:/x")
	archive, err := c.Export(t.Context(), noDamage(t))
	if err != nil || archive.Members["n"].Keeper != "" {
		t.Fatalf("export %+v, %v", archive.Members, err)
	}
	backup, _, err := s.Client().KVGet(t.Context(), "jorc/prod/host/n/member", consul.Query{})
	if err != nil {
		t.Fatal(err)
	}
	old.stop()
	k := keeping(t, c, "b:/x", cluster.Record{Zone: "r1"})
	wantKeeper(t, c, "b:/x")
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: backup.Key, Value: backup.Value}); err != nil {
		t.Fatal(err)
	}
	wantKeeper(t, c, "b:/x")
	if err := c.Import(t.Context(), archive, true); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Record(t.Context(), "n"); err != nil || r.Keeper != "b:/x" {
		t.Errorf("after the import the record is %+v, %v", r, err)
	}
	if other, _ := k.OtherAgent(); other != "" || len(k.warnings()) > 0 {
		t.Errorf("%q is taken for a rival: %q", other, k.warnings())
	}
}

// TestMemberOf: one member alone is what it is among all, and the cluster's
// filter says the same of it.
func TestMemberOf(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	clustertest.AddNode(t, s, "one", "passing", "warning")
	clustertest.AddNode(t, s, "two", "critical", "passing")
	for _, node := range []string{"one", "two", "hostless"} {
		clustertest.Join(t, c, node, "db")
	}
	report := &consul.KVPair{Key: "jorc/prod/nodes/one", Value: []byte(`{"format":1,"version":"v7","states":{"config":{"state":"failed"}}}`)}
	if err := s.Client().KVPut(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	filter, err := profile.ParseValue(`Health == "warning" or Version == "v7" or Agent == "up"`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Set(t.Context(), profile.Scope{}, cluster.ParamFilter, filter, profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	for node, want := range members(t, c, "") {
		got, err := c.MemberOf(t.Context(), node, cluster.NeedAll)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", node, got, err, want)
		}
	}
	if _, err := c.MemberOf(t.Context(), "stranger", cluster.NeedAll); !errors.Is(err, cluster.ErrNoMember) {
		t.Errorf("got %v, want ErrNoMember", err)
	}
}

// TestRecordSyncChecksParams: params of a member's own files are refused as others are,
// also in place of a record that is damaged.
func TestRecordSyncChecksParams(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	_, err := c.ChangeProfile(t.Context(), func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		return e.SetSchema(d, "disks", clustertest.Value(t, `{"type": "integer"}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ node, stored string }{{"new", ""}, {"damaged", "garbage"}} {
		for key, bad := range map[string]string{"disks": "hunter2", "cluster/filter": "Zone =="} {
			if test.stored != "" {
				if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: c.Store().Path(cluster.MemberKey(test.node)), Value: []byte(test.stored)}); err != nil {
					t.Fatal(err)
				}
			}
			before := index(t, s, "jorc/")
			log := &kept{}
			ctx, cancel := context.WithCancel(t.Context())
			files := cluster.Record{Params: profile.Params{key: clustertest.Value(t, `"`+bad+`"`)}}
			k := c.NewRecordSync(fleet.RecordSyncOptions{Node: test.node, Files: files, Log: hclog.New(&hclog.LoggerOptions{Output: log})})
			var running sync.WaitGroup
			running.Go(func() { _ = k.Run(ctx) })
			consultest.Eventually(t, "the refusal of "+key, func(context.Context) error {
				if text := log.text(); !strings.Contains(text, "cannot be written") || !strings.Contains(text, key) || strings.Contains(text, "hunter2") {
					return fmt.Errorf("the log is %q", text)
				}
				return nil
			})
			cancel()
			running.Wait()
			if now := index(t, s, "jorc/"); now != before {
				t.Errorf("%s, %s: something was written", test.node, key)
			}
		}
	}
}

// TestRecordSyncWorkflows: the names of workflows are kept as the files have them; an
// agent finds no difference between an empty list in its files and in Consul, and
// one in a record that does not have it.
func TestRecordSyncWorkflows(t *testing.T) {
	t.Parallel()
	c, _ := clustertest.Initialized(t)
	k := keeping(t, c, "", cluster.Record{Workflows: []string{"a", "b"}, Static: []string{}})
	const want = `{"workflows":["a","b"],"static":[]}`
	for n := 1; n <= 3; n++ {
		consultest.Eventually(t, "the record", func(ctx context.Context) error {
			r, err := c.Record(ctx, "n")
			if text, _ := json.Marshal(r); err == nil && string(text) != want {
				err = errors.New(string(text))
			}
			return err
		})
		consultest.Eventually(t, "the log", func(context.Context) error {
			if got := strings.Count(k.text(), "was written"); got < n {
				return fmt.Errorf("%d writes", got)
			}
			return nil
		})
		if got := strings.Count(k.text(), "was written"); got != n {
			t.Fatalf("%d writes after %d differences", got, n)
		}
		if _, err := c.Join(t.Context(), "n", func(r cluster.Record) (cluster.Record, error) {
			r.Workflows, r.Static = nil, nil // as an older jorc writes it
			return r, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeeperLeavesLeadersToElectors: an agent that keeps its record reads no other member
// where a leader is missing; a thousand that start at the same time would.
func TestKeeperLeavesLeadersToElectors(t *testing.T) {
	t.Parallel()
	_, s := clustertest.Initialized(t)
	var mu sync.Mutex
	asked := map[string]int{}
	g := &clustertest.Gateway{Asked: func(path string) {
		mu.Lock()
		defer mu.Unlock()
		asked[path]++
	}}
	c := fleet.New(g.Client(t, s), "jorc", "prod")
	keeping(t, c, "a:/x", cluster.Record{Zone: "r1"})
	consultest.Eventually(t, "the record to be followed", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if asked["/v1/kv/jorc/prod/host/n/member"] < 2 { // the first answer is what is corrected
			return fmt.Errorf("asked for %v", asked)
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	for _, path := range []string{"/v1/kv/jorc/prod/host/", "/v1/health/state/any", "/v1/catalog/nodes"} {
		if asked[path] > 0 {
			t.Errorf("the keeper asks for %s, which grows with the fleet", path)
		}
	}
}

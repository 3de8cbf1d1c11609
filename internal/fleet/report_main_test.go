package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

// moverOf, set to the address of a Consul, makes the test's program a host
// that reports one version after another.
const moverOf = "NODES_TEST_MOVER_OF"

func TestMain(m *testing.M) {
	if address := os.Getenv(moverOf); address != "" {
		if err := reportChange(address); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// reportChange reports versions and states without end, and says so.
func reportChange(address string) error {
	client, err := consul.New(config.Consul{Address: address})
	if err != nil {
		return err
	}
	w := fleet.New(client, "jorc", "default").ReportWriter("n1") // as an agent has it
	for i := rand.IntN(1000); ; i++ {
		_, err := w.Change(context.Background(), func(d cluster.Report) (cluster.Report, error) {
			return moved(d, i)
		})
		if err != nil {
			return err
		}
		fmt.Println("moved", i)
	}
}

// moved is a document a step on: versions and states change, some are skipped.
func moved(d cluster.Report, i int) (cluster.Report, error) {
	states := cluster.States()
	d = d.At("v"+strconv.Itoa(i*i%97), d.Since)
	d = d.With(cluster.CategoryConfig, cluster.CategoryState{State: states[i%4], Detail: strconv.Itoa(i)}, d.Since)
	return d.With(cluster.CategoryValidation, cluster.CategoryState{State: states[i%3]}, d.Since), nil
}

// server is a Consul server with one client for all of a test.
type server struct {
	*consultest.Server
	client *consul.Client
}

// Client returns the one client: connections of many count against a limit.
func (s *server) Client() *consul.Client { return s.client }

func newLedger(t testing.TB, opts ...consultest.Option) (*fleet.Cluster, *server) {
	t.Helper()
	started := consultest.Start(t, opts...)
	s := &server{started, started.Client()}
	return fleet.New(s.Client(), "jorc", "default"), s
}

// put writes a key as another program's script would.
func put(t testing.TB, s *server, key, value string) {
	t.Helper()
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: key, Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
}

// keys returns all keys below prefix with their values.
func keys(t testing.TB, c *consul.Client, prefix string) map[string]string {
	t.Helper()
	pairs, _, err := c.KVList(t.Context(), prefix, consul.Query{Consistent: true})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, p := range pairs {
		all[strings.TrimPrefix(p.Key, prefix)] = string(p.Value)
	}
	return all
}

// indexOf returns the index keys that name node, in order.
func indexOf(all map[string]string, node string) []string {
	var index []string
	for key := range all {
		if strings.HasSuffix(key, "/"+node) && !strings.HasPrefix(key, "nodes/") {
			index = append(index, key)
		}
	}
	slices.Sort(index)
	return index
}

// broken says how the keys of node contradict one another; nil when they do not.
func broken(all map[string]string, node string) error {
	index := indexOf(all, node)
	text, ok := all["nodes/"+node]
	if !ok {
		if len(index) > 0 {
			return fmt.Errorf("no document, but %v", index)
		}
		return nil
	}
	var d cluster.Report
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	var want []string
	if d.Version != "" {
		want = append(want, "running_version/"+d.Version+"/"+node)
	}
	for category, s := range d.States {
		want = append(want, "status/"+category+"/"+s.State+"/"+node)
	}
	slices.Sort(want)
	if !slices.Equal(index, want) {
		return fmt.Errorf("index keys are %v, the document says %v", index, want)
	}
	return nil
}

func wantWhole(t testing.TB, s *server, node string) {
	t.Helper()
	if err := broken(keys(t, s.Client(), "jorc/default/"), node); err != nil {
		t.Error(err)
	}
}

func wantIndex(t testing.TB, s *server, prefix, node string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := indexOf(keys(t, s.Client(), prefix), node); !slices.Equal(got, want) {
		t.Errorf("index keys of %s are %v, want %v", node, got, want)
	}
}

func mustReport(t testing.TB, l *fleet.Cluster, node, version string) {
	t.Helper()
	if _, err := l.ReportVersion(t.Context(), node, version); err != nil {
		t.Fatalf("Report(%s, %s) = %v", node, version, err)
	}
}

func mustState(t testing.TB, l *fleet.Cluster, node, category string, s cluster.CategoryState) {
	t.Helper()
	if _, err := l.SetState(t.Context(), node, category, s); err != nil {
		t.Fatalf("SetState(%s, %s) = %v", node, category, err)
	}
}

func mustDocument(t testing.TB, l *fleet.Cluster, node string) cluster.Report {
	t.Helper()
	d, _, err := l.Report(t.Context(), node)
	if err != nil {
		t.Fatalf("Document(%s) = %v", node, err)
	}
	return d
}

var lastIndex = regexp.MustCompile(`last_log_index = (\d+)`)

// raftIndex is the index of the last entry in Consul's log.
func raftIndex(t testing.TB, s *server) string {
	t.Helper()
	return lastIndex.FindString(s.Run("info"))
}

// unwritten fails the test when do makes Consul write anything. Consul itself
// writes after its start, so do is repeated until no other write happens meanwhile.
func unwritten(t testing.TB, s *server, what string, do func()) {
	t.Helper()
	consultest.Eventually(t, what+" without a write", func(context.Context) error {
		before := raftIndex(t, s)
		do()
		if now := raftIndex(t, s); now != before {
			return fmt.Errorf("raft went from %s to %s", before, now)
		}
		return nil
	})
}

// nodesStore is the store of the cluster's keys.
func nodesStore(s *server) *kv.Store { return kv.New(s.Client(), "jorc/default") }

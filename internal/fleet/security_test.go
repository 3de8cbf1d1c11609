package fleet_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

var updateSecurity = flag.Bool("update-security", false, "write what stolen tokens can do into docs/security.md")

// instances are keys of a pattern: of the token's own node, and of another one.
func instances(pattern, node string) (own, other string) {
	fill := strings.NewReplacer("<version>", "v9", "<category>", "config", "<state>", "failed", "<group>", "reload", "…", "x")
	own = fill.Replace(strings.ReplaceAll(pattern, "<node>", node))
	return own, fill.Replace(strings.ReplaceAll(pattern, "<node>", "other-node"))
}

// TestStolenTokens tries to write every key with a token of every kind. What
// works is what docs/security.md says; and no token of one host but an
// orchestrator's writes what is of another one, but for slots.
func TestStolenTokens(t *testing.T) {
	t.Parallel()
	g := clustertest.NewGuarded(t)
	profileToken, err := g.Root.ProfileToken(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	g.Tokens[string(cluster.KindProfile)], g.Tokens[string(cluster.KindAnonymous)] = profileToken.Secret, ""
	kinds := []cluster.Kind{cluster.KindAgent, cluster.KindElector, cluster.KindOrchestrator, cluster.KindOperator, cluster.KindProfile, cluster.KindAnonymous}
	may := func(kind cluster.Kind, key string) bool {
		_, err := g.As(string(kind), "prod").Store().Txn().Set(key, []byte("x")).Commit(t.Context())
		if err != nil && !errors.Is(err, consul.ErrDenied) {
			t.Errorf("%s writes %s: %v", kind, key, err)
		}
		return err == nil
	}
	var table strings.Builder
	table.WriteString("| key | holds |")
	for _, kind := range kinds {
		fmt.Fprintf(&table, " %s |", kind)
	}
	table.WriteString("\n|---|---|" + strings.Repeat("---|", len(kinds)) + "\n")
	for _, k := range cluster.Keys {
		own, other := instances(k.Pattern, g.Server.Node)
		fmt.Fprintf(&table, "| `%s` | %s |", k.Pattern, k.Holds)
		for _, kind := range kinds {
			mine, others := may(kind, own), may(kind, other)
			switch {
			case mine && others:
				table.WriteString(" writes |")
			case mine:
				table.WriteString(" its own node's |")
			case others:
				t.Errorf("%s writes %s and not %s", kind, other, own)
			default:
				table.WriteString(" – |")
			}
			if others && own != other && slices.Contains([]cluster.Kind{cluster.KindAgent, cluster.KindElector, cluster.KindProfile, cluster.KindAnonymous}, kind) {
				t.Errorf("%s writes %s, which is of another node", kind, other)
			}
			if listed := kind == cluster.KindOperator || slices.Contains(k.Writers, kind); mine && !listed && kind != cluster.KindElector && kind != cluster.KindOrchestrator {
				t.Errorf("%s writes %s, and the table of keys does not say so", kind, own)
			}
		}
		table.WriteString("\n")
	}
	const file, begin, end = "../../docs/security.md", "<!-- keys and tokens -->\n", "<!-- end -->\n"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := bytes.Cut(data, []byte(begin))
	have, tail, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		t.Fatalf("%s has no table between %q and %q", file, begin, end)
	}
	if *updateSecurity {
		text := slices.Concat(head, []byte(begin), []byte(table.String()), []byte(end), tail)
		if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(have), table.String()); diff != "" {
		t.Errorf("%s differs (-have +want); 'go test ./internal/fleet -run TestStolenTokens -update-security' writes it:\n%s", file, diff)
	}
}

// TestLeadersNeedAnElector: what keeps other tokens from saying who leads are ACLs:
// they can neither write the leaders nor touch the lock of the election. The lock
// fences its former holder. It cannot tell electors apart: each of them can end
// another one's lock and take it, so that readers would learn nothing from it.
func TestLeadersNeedAnElector(t *testing.T) {
	t.Parallel()
	g := clustertest.NewGuarded(t)
	profileToken, err := g.Root.ProfileToken(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	g.Tokens[string(cluster.KindProfile)], g.Tokens[string(cluster.KindAnonymous)] = profileToken.Secret, ""
	holder := kv.LeaseOptions{Holder: kv.Holder{Node: g.Server.Node}}
	held, err := g.Root.Store().TryLock(t.Context(), cluster.KeyElection, holder)
	if err != nil {
		t.Fatal(err)
	}
	unlock := func(kind cluster.Kind) error {
		_, _ = g.As(string(kind), "prod").Store(), kind // makes the client
		ok, _, err := g.Clients[string(kind)].Txn(t.Context(), "unlock", consul.TxnOps{{KV: &consul.KVTxnOp{
			Verb: consul.KVUnlock, Key: "jorc/prod/" + cluster.KeyElection, Session: held.Session(),
		}}})
		if err == nil && !ok {
			err = consul.ErrDenied
		}
		return err
	}
	forged := []byte(`{"format":1,"leader":["evil"],"count":1}`)
	for _, kind := range []cluster.Kind{cluster.KindAgent, cluster.KindOrchestrator, cluster.KindProfile, cluster.KindAnonymous} {
		c := g.As(string(kind), "prod")
		_, err := c.Store().Txn().Set(cluster.KeyLeaders, forged).Commit(t.Context())
		_, lockErr := c.Store().TryLock(t.Context(), cluster.KeyElection, holder)
		for what, err := range map[string]error{"write the leaders": err, "end the election's lock": unlock(kind), "take it": lockErr} {
			if err == nil || what != "take it" && !errors.Is(err, consul.ErrDenied) {
				t.Errorf("%s: %s: %v", kind, what, err)
			}
		}
	}
	if l, err := g.Root.Leaders(t.Context()); err != nil || l.Leads("evil") || held.Err() != nil {
		t.Fatalf("leaders are %+v, %v; the lock: %v", l, err, held.Err())
	}

	if err := unlock(cluster.KindElector); err != nil {
		t.Fatalf("an elector ends the lock of another: %v; say in docs/security.md what changed", err)
	}
	if err := g.Root.In(held.Store()).SetCount(t.Context(), 7); !errors.Is(err, kv.ErrLockLost) && !errors.Is(err, kv.ErrConflict) {
		t.Errorf("the former holder sets the count: %v", err)
	}
	if l, err := g.Root.Leaders(t.Context()); err != nil || l.Count == 7 {
		t.Errorf("leaders are %+v, %v", l, err)
	}
}

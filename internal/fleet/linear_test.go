package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/profile"
)

// pair is the state of the sequential profile: two params.
type pair struct{ a, b string }

// operation is a read, a set of param a with a reference, or a patch that tests
// a and replaces both.
type operation struct {
	kind     string // get, set, patch
	from, to string
}

type outcome struct {
	read          pair
	done, unknown bool
}

var sequential = porcupine.Model{
	Init: func() any { return pair{`"0"`, `"0"`} },
	Step: func(state, input, output any) (bool, any) {
		now, in, out := state.(pair), input.(operation), output.(outcome)
		next := pair{in.to, now.b}
		if in.kind == "patch" {
			next.b = in.to
		}
		switch {
		case in.kind == "get":
			return out.read == now, now
		case out.unknown && in.from == now.a: // porcupine tries also to leave it to the end
			return true, next
		case out.unknown:
			return true, now
		case out.done:
			return in.from == now.a, next
		}
		return in.from != now.a, now
	},
}

// history collects what clients did and when.
type history struct {
	mu    sync.Mutex
	begin time.Time
	ops   []porcupine.Operation
}

func (h *history) add(client int, in operation, call time.Time, out outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	end := time.Since(h.begin).Nanoseconds()
	if out.unknown {
		end = math.MaxInt64
	}
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: call.Sub(h.begin).Nanoseconds(), Output: out, Return: end})
}

func (h *history) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// TestProfileIsLinearizable lets clients of three servers get, set and patch
// one profile while the servers are killed and frozen in turn. Every other
// client loses writes and their answers.
func TestProfileIsLinearizable(t *testing.T) {
	t.Parallel()
	servers := consultest.StartCluster(t, 3)
	first := fleet.New(servers[0].Client(), "jorc", "prod")
	if _, err := first.Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		if err := clustertest.Set(t, first, key, `"0"`, profile.Ref{}); err != nil {
			t.Fatal(err)
		}
	}
	h := &history{begin: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	for i := range 6 {
		c := fleet.New(servers[i%3].Client(), "jorc", "prod")
		if i%2 == 1 {
			way := servers[i%3].Proxy()
			way.Do(consultest.LoseWrites())
			c = fleet.New(way.Client(), "jorc", "prod")
		}
		c = c.Consistent()
		clients.Go(func() {
			// A client whose write is unknown continues as another one: porcupine's clients do one thing at a time.
			for n, id := 0, i; ctx.Err() == nil; n++ {
				if readAndWrite(ctx, t, h, c, id, n) {
					id += 6
				}
			}
		})
	}
	more := func(what string) {
		before := h.len()
		consultest.Eventually(t, what, func(context.Context) error {
			if h.len() < before+40 {
				return errors.New("too few operations yet")
			}
			return nil
		})
	}
	more("a start")
	for i, s := range servers[:2] {
		if i == 0 {
			s.Freeze()
			more("progress while " + s.Node + " is frozen")
			s.Thaw()
		} else {
			s.Kill()
			more("progress while " + s.Node + " is dead")
			s.RestartNoWait()
		}
		s.WaitLeader()
		more("progress after its return")
	}
	cancel()
	clients.Wait()
	if result, _ := porcupine.CheckOperationsVerbose(sequential, h.ops, time.Minute); result != porcupine.Ok {
		t.Errorf("a history of %d operations is %s", len(h.ops), result)
	}
	count := map[string]int{}
	for _, op := range h.ops {
		switch out := op.Output.(outcome); {
		case op.Input.(operation).kind == "get":
			count["read"]++
		case out.unknown:
			count["unknown"]++
		case out.done:
			count["done"]++
		default:
			count["refused"]++
		}
	}
	if len(count) != 4 {
		t.Errorf("of %d operations %v: some do not come up", len(h.ops), count)
	}
}

// readAndWrite does both once; unknown tells that the write's outcome is.
func readAndWrite(ctx context.Context, t *testing.T, h *history, c *fleet.Cluster, client, n int) (unknown bool) {
	call := time.Now()
	short, done := context.WithTimeout(ctx, 2*time.Second)
	defer done()
	d, err := c.Profile(short)
	if err != nil {
		return false // a read that failed says nothing
	}
	now := pair{d.Params["a"].String(), d.Params["b"].String()}
	h.add(client, operation{kind: "get"}, call, outcome{read: now})
	in := operation{kind: "set", from: now.a, to: fmt.Sprintf(`"%d-%d"`, client, n)}
	call = time.Now()
	if n%2 == 0 {
		in.kind = "patch"
		err = patch(short, t, c, in)
	} else {
		from, to := clustertest.Value(t, in.from), clustertest.Value(t, in.to)
		_, err = c.Set(short, profile.Scope{}, "a", to, profile.Ref{Value: &from})
	}
	switch {
	case err == nil:
		h.add(client, in, call, outcome{done: true})
	case errors.Is(err, profile.ErrMismatch):
		h.add(client, in, call, outcome{})
	case errors.Is(err, consul.ErrOutcomeUnknown):
		h.add(client, in, call, outcome{unknown: true})
		return true
	case !errors.Is(err, consul.ErrUnreachable) && short.Err() == nil:
		t.Errorf("%s = %v", in.kind, err)
	}
	return false
}

func patch(ctx context.Context, t *testing.T, c *fleet.Cluster, in operation) error {
	text := fmt.Sprintf(`[{"op":"test","path":"/params/a","value":%s},{"op":"replace","path":"/params/a","value":%s},{"op":"replace","path":"/params/b","value":%s}]`,
		in.from, in.to, in.to)
	p, err := profile.ParsePatch([]byte(text))
	if err != nil {
		t.Error(err)
		return err
	}
	_, err = c.ChangeProfile(ctx, func(e *profile.Editor, d profile.Document) (profile.Document, error) { return e.Patch(d, p) })
	return err
}

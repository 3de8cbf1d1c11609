package consul_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

func client(t *testing.T, conf config.Consul) *consul.Client {
	t.Helper()
	c, err := consul.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// on injects f into requests whose path ends with one of the keys.
func on(f consultest.Fault, keys ...string) func(*http.Request) consultest.Fault {
	return func(r *http.Request) consultest.Fault {
		for _, k := range keys {
			if strings.HasSuffix(r.URL.Path, "/"+k) {
				return f
			}
		}
		return consultest.Fault{}
	}
}

func TestWatchSurvivesBadAnswers(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	direct := s.Client()
	for name, tt := range map[string]struct {
		fault consultest.Fault
		want  error
	}{
		"429":         {consultest.Fault{Status: http.StatusTooManyRequests}, consul.ErrRateLimited},
		"500":         {consultest.Fault{Status: http.StatusInternalServerError}, consul.ErrUnreachable},
		"403":         {consultest.Fault{Status: http.StatusForbidden}, consul.ErrDenied},
		"cut answers": {consultest.Fault{Cut: 5}, consul.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := s.Proxy()
			c := p.Client()
			key := strings.ReplaceAll(name, " ", "-")
			put(t, direct, key, "1")
			updates := watchKey(t, c, key)
			until(t, updates, has("1"))
			p.Do(on(tt.fault, key))
			put(t, direct, key, "2")
			for range 3 {
				if u := until(t, updates, failed); !errors.Is(u.Err, tt.want) {
					t.Errorf("error = %v; want %v", u.Err, tt.want)
				}
			}
			p.Do(nil)
			until(t, updates, has("2"))
			if since := c.Stats().UnreachableSince; !since.IsZero() {
				t.Errorf("unreachable since %s; want zero", since)
			}
		})
	}
}

func TestOneBadEndpointDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	p := s.Proxy()
	c := p.Client()
	p.Do(on(consultest.Fault{Status: http.StatusInternalServerError}, "bad"))
	bad, good := watchKey(t, c, "bad"), watchKey(t, c, "good")
	for i := range 5 {
		until(t, bad, failed)
		put(t, s.Client(), "good", fmt.Sprint(i))
		until(t, good, has(fmt.Sprint(i)))
		if !c.Stats().UnreachableSince.IsZero() {
			t.Fatal("Consul counts as unreachable although only one key fails")
		}
	}
}

// TestSlowAnswers: Consul answers for one key later than a request usually may take. The watch of that
// key gives it more time and gets the answer. The others are not delayed, and Consul does not
// count as unreachable.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	p := s.Proxy()
	c := p.Client()
	p.Do(on(consultest.Fault{Slow: 12 * time.Second}, "slow"))
	direct := s.Client()
	put(t, direct, "slow", "v")
	slow, fast := watchKey(t, c, "slow"), watchKey(t, c, "fast")
	ended := make(chan struct{})
	var changes, looks errgroup.Group
	changes.Go(func() error { // other requests that Consul answers
		for i := 0; ; i++ {
			select {
			case <-ended:
				return nil
			case <-time.After(50 * time.Millisecond):
			}
			if err := direct.KVPut(t.Context(), &consul.KVPair{Key: "fast", Value: []byte(fmt.Sprint(i))}); err != nil {
				return err
			}
			until(t, fast, has(fmt.Sprint(i)))
		}
	})
	looks.Go(func() error {
		for {
			select {
			case <-ended:
				return nil
			case <-time.After(time.Millisecond): // shorter than the pause between two answers
			}
			if since := c.Stats().UnreachableSince; !since.IsZero() {
				return fmt.Errorf("Consul counts as unreachable since %v although one answer is slow", since)
			}
		}
	})
	until(t, slow, failed)
	until(t, slow, has("v"))
	close(ended)
	if err := errors.Join(changes.Wait(), looks.Wait()); err != nil {
		t.Error(err)
	}
	if c.Stats().Failures == 0 {
		t.Error("no answer was slow")
	}
}

// TestSlowProbe: a probe without an answer does not keep others from probing.
func TestSlowProbe(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	p := s.Proxy()
	c := p.Client()
	var away, hung, beside atomic.Bool
	var probe context.Context // of the slow watch's request
	away.Store(true)
	p.Do(func(r *http.Request) consultest.Fault { // one request after the other
		if strings.HasSuffix(r.URL.Path, "/fast") && probe != nil && probe.Err() == nil {
			beside.Store(true)
		}
		switch {
		case away.Load():
			return consultest.Fault{Status: http.StatusInternalServerError, Text: "No cluster leader"}
		case strings.HasSuffix(r.URL.Path, "/slow"):
			if probe == nil {
				probe = r.Context()
			}
			hung.Store(true)
			return consultest.Fault{Hang: true}
		}
		return consultest.Fault{}
	})
	slow := latest(watchKey(t, c, "slow"))
	until(t, slow, failed)
	away.Store(false)
	consultest.Eventually(t, "the slow watch to probe", func(context.Context) error {
		if !hung.Load() {
			return errors.New("not yet")
		}
		return nil
	})
	fast := latest(watchKey(t, c, "fast"))
	until(t, fast, func(u consul.Update[*consul.KVPair]) bool { return u.Err == nil })
	if !beside.Load() {
		t.Error("the other watch waited for the end of the slow probe")
	}
}

// TestWatchInTurn: while Consul is away, a watch in turn leaves it to another one to find out when it is back, and asks only
// after its turn has come.
func TestWatchInTurn(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	put(t, s.Client(), "turn", "v")
	p := s.Proxy()
	c := p.Client()
	other := latest(watchKey(t, c, "other"))
	until(t, other, func(u consul.Update[*consul.KVPair]) bool { return u.Err == nil })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	source := func(ctx context.Context, q consul.Query) (*consul.KVPair, consul.Meta, error) {
		return c.KVGet(ctx, "turn", q)
	}
	const path = "/v1/kv/turn"
	var asked []int // for the key, when the turn came
	turn := func() time.Duration {
		asked = append(asked, p.Asked(path))
		return 0
	}
	updates := make(chan consul.Update[*consul.KVPair])
	running.Go(func() {
		_ = consul.WatchInTurn(ctx, c, consul.Query{}, turn, source, func(u consul.Update[*consul.KVPair]) { // ends with ctx
			select {
			case updates <- u:
			case <-ctx.Done():
			}
		})
	})
	until(t, updates, has("v"))
	p.WaitBlocking(path)
	p.Away()
	until(t, updates, failed)
	want := []int{p.Asked(path)}
	for range 5 {
		until(t, other, failed)
	}
	p.Do(nil)
	until(t, updates, has("v"))
	cancel()
	running.Wait()
	if !slices.Equal(asked, want) {
		t.Errorf("its turns came after %v requests, want %v", asked, want)
	}
}

func TestFewRequestsToADeadConsul(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var attempts atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			attempts.Add(1)
			conn.Close()
		}
	}()
	defer l.Close()
	const watches = 100
	c := client(t, config.Consul{Address: l.Addr().String(), MaxConnections: 64})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range watches {
		wg.Go(func() {
			source := func(ctx context.Context, q consul.Query) (*consul.KVPair, consul.Meta, error) {
				return c.KVGet(ctx, fmt.Sprint(i), q)
			}
			_ = consul.Watch(ctx, c, consul.Query{}, source, func(consul.Update[*consul.KVPair]) {}) // ends with ctx
		})
	}
	const probes = 5
	consultest.Eventually(t, "more attempts", func(context.Context) error {
		if n := attempts.Load(); n < watches+probes {
			if time.Since(begin) < 10*time.Second {
				return fmt.Errorf("%d attempts", n)
			}
		}
		return nil
	})
	// Each watch may fail once at the start (net/http tries each request twice).
	// Later there is one probe at a time, at least 50 ms after the last.
	most := 2*watches + 2*int64(time.Since(begin)/(50*time.Millisecond)) + 10
	if n := attempts.Load(); n > most {
		t.Errorf("%d attempts in %s; want at most %d", n, time.Since(begin), most)
	}
	cancel()
	wg.Wait()
}

func TestAllWatchesComeBack(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.Persistent())
	for _, watches := range []int{3, 40} { // within the budget, and beyond it
		conf := s.Config()
		conf.MaxConnections = 16
		c := client(t, conf)
		channels := make([]<-chan consul.Update[*consul.KVPair], watches)
		for i := range channels {
			put(t, s.Client(), fmt.Sprint("k", i), "before")
			channels[i] = latest(watchKey(t, c, fmt.Sprint("k", i)))
		}
		for _, u := range channels {
			until(t, u, has("before"))
		}
		s.Kill()
		consultest.Eventually(t, "the client to notice", func(context.Context) error {
			if c.Stats().UnreachableSince.IsZero() {
				return errors.New("not yet")
			}
			return nil
		})
		s.Restart()
		for i := range channels {
			put(t, s.Client(), fmt.Sprint("k", i), "after")
		}
		for _, u := range channels {
			until(t, u, has("after"))
		}
	}
}

// TestWatchWhileConsulReplaysItsLog: a server that has just become leader answers
// reads before its log is replayed, from an empty store. A watch must not take
// that for a deletion. The log here takes half a second to replay.
func TestWatchWhileConsulReplaysItsLog(t *testing.T) {
	t.Parallel()
	// Without this Consul answers all queries that wait for a leader at moments up to
	// three seconds apart, and few of them fall into the replay.
	s := consultest.Start(t, consultest.Persistent(), consultest.WithConfig(map[string]any{
		"performance": map[string]any{"raft_multiplier": 1, "rpc_hold_timeout": "200ms"},
	}))
	direct := s.Client()
	var writers errgroup.Group
	for i := range 8 {
		writers.Go(func() error {
			for range 100 {
				ops := make(consul.TxnOps, 64)
				for n := range ops {
					ops[n] = &consul.TxnOp{KV: &consul.KVTxnOp{Verb: consul.KVSet, Key: fmt.Sprintf("load/%d/%d", i, n), Value: make([]byte, 4<<10)}}
				}
				if ok, _, err := direct.Txn(t.Context(), "load", ops); !ok || err != nil {
					return fmt.Errorf("transaction: %v, %w", ok, err)
				}
			}
			return nil
		})
	}
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	put(t, direct, "k", "0")
	for round := range 2 {
		before, after := fmt.Sprint(round), fmt.Sprint(round+1)
		updates := make([]<-chan consul.Update[*consul.KVPair], 8)
		for i := range updates {
			updates[i] = watchKey(t, s.Client(), "k")
			until(t, updates[i], has(before))
		}
		s.Kill()
		s.RestartNoWait()
		var all sync.WaitGroup
		for _, updates := range updates {
			all.Go(func() {
				for u := range updates {
					switch {
					case has(after)(u):
						return
					case u.Err == nil && !has(before)(u):
						t.Errorf("round %d: the watch reports %+v with index %d; the key was never deleted", round, u.Value, u.Meta.Index)
					}
				}
			})
		}
		s.WaitLeader()
		put(t, s.Client(), "k", after)
		all.Wait()
	}
}

// TestLowerIndexIsConfirmed: an answer with a lower index is not passed on. The
// consistent one after it is, as a reset, even if a write has raised the index since.
func TestLowerIndexIsConfirmed(t *testing.T) {
	t.Parallel()
	c := client(t, config.Consul{Address: "127.0.0.1:1"}) // the source does not use it
	type answer struct {
		value string
		index uint64
	}
	answers := []answer{{"before", 10}, {"stale", 5}, {"after", 12}}
	var asked []consul.Query
	source := func(ctx context.Context, q consul.Query) (string, consul.Meta, error) {
		if asked = append(asked, q); len(asked) > len(answers) {
			<-ctx.Done()
			return "", consul.Meta{}, ctx.Err()
		}
		a := answers[len(asked)-1]
		return a.value, consul.Meta{Index: a.index}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	var updates []string
	err := consul.Watch(ctx, c, consul.Query{}, source, func(u consul.Update[string]) {
		updates = append(updates, fmt.Sprint(u.Value, " ", u.Reset))
		if u.Value == "after" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Watch ended with %v", err)
	}
	if want := []string{"before false", "after true"}; !slices.Equal(updates, want) {
		t.Errorf("updates %q, want %q", updates, want)
	}
	for i, want := range []consul.Query{{Consistent: true}, {Index: 10}, {Consistent: true}} {
		if q := asked[i]; q.Index != want.Index || q.Consistent != want.Consistent {
			t.Errorf("query %d has index %d, consistent %v; want %d, %v", i, q.Index, q.Consistent, want.Index, want.Consistent)
		}
	}
}

// latest keeps only the last update, so that a watch without a reader continues.
func latest(in <-chan consul.Update[*consul.KVPair]) <-chan consul.Update[*consul.KVPair] {
	out := make(chan consul.Update[*consul.KVPair], 1)
	go func() {
		for u := range in {
			select {
			case <-out:
			default:
			}
			out <- u
		}
	}()
	return out
}

func TestWatchNoticesAConsulThatIsFrozen(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c := s.Client()
	updates := latest(watchKey(t, c, "k"))
	other := latest(watchKey(t, c, "other"))
	until(t, updates, func(u consul.Update[*consul.KVPair]) bool { return u.Err == nil })
	s.Freeze()
	until(t, updates, failed)
	s.Thaw()
	put(t, s.Client(), "k", "v")
	put(t, s.Client(), "other", "v")
	until(t, updates, has("v"))
	until(t, other, has("v"))
}

func TestWatchStartsOverAfterARestore(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.Persistent())
	c := s.Client()
	put(t, c, "k", "old")
	file := t.TempDir() + "/snapshot"
	s.Run("snapshot", "save", file)
	for i := range 50 {
		put(t, c, "k", fmt.Sprint(i))
	}
	updates := watchKey(t, c, "k")
	until(t, updates, has("49"))
	s.Run("snapshot", "restore", file)
	until(t, updates, has("old"))
	put(t, c, "k", "new")
	until(t, updates, has("new"))
}

// TestWatchRereadsAfterARestore: a query that blocks while a snapshot is restored
// ends early with the old value. The next query has no index, because with one
// it would block for up to a minute.
func TestWatchRereadsAfterARestore(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.Persistent())
	direct := s.Client()
	put(t, direct, "k", "old")
	file := t.TempDir() + "/snapshot"
	s.Run("snapshot", "save", file)
	put(t, direct, "k", "new")
	var blocking, anew atomic.Int64
	proxy := s.Proxy()
	proxy.Do(func(r *http.Request) consultest.Fault {
		if r.URL.Path == "/v1/kv/k" {
			if r.URL.Query().Has("index") {
				blocking.Add(1)
			} else {
				anew.Add(1)
			}
		}
		return consultest.Fault{}
	})
	c := proxy.Client()
	updates := watchKey(t, c, "k")
	until(t, updates, has("new"))
	consultest.Eventually(t, "a query to block", func(context.Context) error {
		if blocking.Load() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	before := anew.Load()
	s.Run("snapshot", "restore", file)
	until(t, updates, has("old"))
	if anew.Load() == before {
		t.Error("all queries after the restore had an index")
	}
	put(t, direct, "k", "newer")
	until(t, updates, has("newer"))
}

func TestNothingIsLeftRunning(t *testing.T) {
	s := consultest.Start(t)
	c := s.Client()
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 100 { // more than the budget
		wg.Go(func() {
			source := func(ctx context.Context, q consul.Query) (*consul.KVPair, consul.Meta, error) {
				return c.KVGet(ctx, fmt.Sprint(i), q)
			}
			_ = consul.Watch(ctx, c, consul.Query{}, source, func(consul.Update[*consul.KVPair]) {}) // ends with ctx
		})
	}
	consultest.Eventually(t, "the watches to run", func(context.Context) error {
		if n := c.Stats().Watches; n != 100 {
			return fmt.Errorf("%d watches", n)
		}
		return nil
	})
	cancel()
	wg.Wait()
	c.Close()
	consultest.Eventually(t, "goroutines and connections to end", func(context.Context) error {
		if n, s := runtime.NumGoroutine(), c.Stats(); n > before+2 || s.Connections > 0 || s.Watches > 0 {
			return fmt.Errorf("%d goroutines, before %d; %+v", n, before, s)
		}
		return nil
	})
}

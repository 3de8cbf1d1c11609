package consul_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// watchKey watches one key in the background and returns its updates.
func watchKey(t *testing.T, c *consul.Client, key string) <-chan consul.Update[*consul.KVPair] {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	updates, done := make(chan consul.Update[*consul.KVPair]), make(chan struct{})
	go func() {
		defer close(done)
		source := func(ctx context.Context, q consul.Query) (*consul.KVPair, consul.Meta, error) {
			return c.KVGet(ctx, key, q)
		}
		err := consul.Watch(ctx, c, consul.Query{}, source, func(u consul.Update[*consul.KVPair]) {
			select {
			case updates <- u:
			case <-ctx.Done():
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Watch ended with %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return updates
}

// until returns the first update for which ok holds.
func until(t *testing.T, updates <-chan consul.Update[*consul.KVPair], ok func(consul.Update[*consul.KVPair]) bool) consul.Update[*consul.KVPair] {
	t.Helper()
	for u := range updates {
		if ok(u) {
			return u
		}
	}
	panic("unreachable")
}

func put(t *testing.T, c *consul.Client, key, value string) {
	t.Helper()
	if err := c.KVPut(t.Context(), &consul.KVPair{Key: key, Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
}

func has(value string) func(consul.Update[*consul.KVPair]) bool {
	return func(u consul.Update[*consul.KVPair]) bool {
		return u.Err == nil && u.Value != nil && string(u.Value.Value) == value
	}
}

func failed(u consul.Update[*consul.KVPair]) bool { return u.Err != nil }

func TestWatchFollowsChanges(t *testing.T) {
	t.Parallel()
	c := consultest.Start(t).Client()
	put(t, c, "k", "start")
	updates := watchKey(t, c, "k")
	if u := <-updates; !has("start")(u) {
		t.Fatalf("first update = %+v; want the present value", u)
	}
	for i := range 5 {
		value := fmt.Sprint(i)
		put(t, c, "other", value)
		put(t, c, "k", value)
		u := <-updates
		if i == 0 && u.Value == nil {
			u = <-updates // the index of an absent key is that of all keys
		}
		if !has(value)(u) {
			t.Fatalf("update = %+v; want %q, and none for another key", u, value)
		}
	}
}

// TestWatchWhileOthersWrite: the index of a missing key changes with each write
// of another key, so that queries return immediately. The watch still sees the
// key when it is written.
func TestWatchWhileOthersWrite(t *testing.T) {
	t.Parallel()
	c := consultest.Start(t).Client()
	asked := make(chan struct{}, 1)
	source := func(ctx context.Context, q consul.Query) (*consul.KVPair, consul.Meta, error) {
		if err := c.KVPut(ctx, &consul.KVPair{Key: "other", Value: []byte(fmt.Sprint(q.Index))}); err != nil {
			return nil, consul.Meta{}, err
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		return c.KVGet(ctx, "key", q)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		_ = consul.Watch(ctx, c, consul.Query{}, source, func(u consul.Update[*consul.KVPair]) {
			if has("here")(u) {
				stop()
			}
		}) // ends with ctx
	}()
	for range 4 {
		<-asked
	}
	put(t, c, "key", "here")
	<-seen
}

func TestWatchSurvivesAnEmptyRestart(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c := s.Client()
	for i := range 20 {
		put(t, c, "k", fmt.Sprint(i))
	}
	updates := watchKey(t, c, "k")
	until(t, updates, has("19"))
	s.Kill()
	until(t, updates, failed)
	s.Restart()
	u := until(t, updates, func(u consul.Update[*consul.KVPair]) bool { return u.Err == nil })
	if u.Value != nil || !u.Reset {
		t.Errorf("update after an empty restart = %+v; want no value, Reset", u)
	}
	put(t, c, "k", "new")
	until(t, updates, has("new"))
}

func TestWatchWithATokenThatIsExchanged(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	put(t, s.Client(), "k", "1")
	rules := `key "k" { policy = "read" }`
	first := s.NewToken(rules)
	file := filepath.Join(t.TempDir(), "token")
	writeFile(t, file, first)
	c, err := consul.New(config.Consul{Address: s.HTTPAddr, TokenFile: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	updates := watchKey(t, c, "k")
	until(t, updates, has("1"))
	s.DeleteToken(first)
	put(t, s.Client(), "k", "2")
	if u := until(t, updates, failed); !errors.Is(u.Err, consul.ErrDenied) {
		t.Errorf("error with a token that was deleted = %v; want ErrDenied", u.Err)
	}
	writeFile(t, file, s.NewToken(rules))
	until(t, updates, has("2"))
}

func TestWatchRotatesBeyondTheBudget(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	conf := s.Config()
	conf.MaxConnections = 8
	c, err := consul.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	const keys = 7
	var most atomic.Int64
	channels := make([]<-chan consul.Update[*consul.KVPair], keys)
	for i := range channels {
		channels[i] = watchKey(t, c, fmt.Sprint("k", i))
		<-channels[i]
	}
	for i, updates := range channels {
		put(t, c, fmt.Sprint("k", i), "v")
		until(t, updates, has("v"))
		most.Store(max(most.Load(), int64(c.Stats().Connections)))
	}
	if got := most.Load(); got > 8 {
		t.Errorf("%d connections were open; the budget is 8", got)
	}
	if got := c.Stats().Watches; got != keys {
		t.Errorf("Stats().Watches = %d; want %d", got, keys)
	}
}

func TestWatchAfterAFreeze(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c := s.Client()
	updates := watchKey(t, c, "k")
	<-updates
	s.Freeze()
	s.Thaw()
	put(t, c, "k", "v")
	until(t, updates, has("v"))
}

func writeFile(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

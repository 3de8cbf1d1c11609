package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/replace"
)

// TestLateChange: what a watcher brings after it was ended, because it was frozen until then,
// does not put old data after what the next one has brought.
func TestLateChange(t *testing.T) {
	t.Parallel()
	s, prefix := consultest.Shared(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	key := prefix + "/n"
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: key, Value: []byte("new")}); err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{
		Client: s.Client(), Consul: s.Config(), StateDir: dir, Replacer: replace.New(dir, nil, hclog.NewNullLogger()), Log: hclog.NewNullLogger(),
		Templates: []config.Template{{Name: "t", Contents: fmt.Sprintf("{{ key %q }}", key), Destination: file}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	consultest.Eventually(t, "the file", func(context.Context) error {
		data, err := os.ReadFile(file)
		if err == nil && string(data) != "new" {
			err = fmt.Errorf("got %q", data)
		}
		return err
	})
	id := "kv.get(" + key + ")"
	if d := e.store.get(id); d.value != "new" {
		t.Fatalf("%s: got %v, want new", id, d.value)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	e.changes <- batch{[]change{{id: id, value: "old"}}, ended}
	e.changes <- batch{nil, t.Context()} // the loop has taken the one before
	if d := e.store.get(id); d.value != "new" {
		t.Errorf("got %v, want new", d.value)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

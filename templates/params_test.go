package templates_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/watch"
)

// TestParamFunction: a file follows its member's effective params, whichever
// layer they change in.
func TestParamFunction(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c := fleet.New(s.Client(), "jorc", "prod")
	if _, err := c.Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "out")
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr})
	e, err := watch.New(watch.Options{
		Client: s.Client(), Consul: s.Config(), StateDir: t.TempDir(), Log: log,
		Replacer: replace.New(t.TempDir(), nil, log), Params: c.ParamsOf("n1"),
		Templates: []config.Template{{Name: "out", Contents: `{{ paramOr "size" 0 }} on {{ param "cluster/profile" }}`, Destination: file}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	want := func(content string) {
		t.Helper()
		consultest.Eventually(t, "the file to hold "+content, func(context.Context) error {
			got, err := os.ReadFile(file)
			if err == nil && string(got) != content {
				err = fmt.Errorf("it holds %q", got)
			}
			return err
		})
	}
	number := func(text string) profile.Value {
		t.Helper()
		v, err := profile.ParseValue(text)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	want("0 on prod")
	if _, err := c.Set(t.Context(), profile.Scope{}, "size", number("1"), profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	want("1 on prod")
	if _, err := c.Join(t.Context(), "n1", func(r cluster.Record) (cluster.Record, error) { return r, nil }); err != nil {
		t.Fatal(err)
	}
	if err := c.SetMemberParam(t.Context(), "n1", "size", number("2"), profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	want("2 on prod")
}

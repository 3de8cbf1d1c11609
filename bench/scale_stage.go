package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/watch"
)

// fleetStage is the stage that all hosts have. Its checks pass at once, and need not
// pass for long.
var fleetStage = config.Stage{
	Name: "file", MaxParallel: parallel.String(), NodeDeadline: uiRun, OnUnhealthy: config.OnUnhealthyRestore,
}

// follower brings the content of a staged file to a host, as the template engine does:
// the file is replaced when the host has the turn for it.
type follower struct {
	file     string
	replacer *replace.Replacer
	stages   *stage.Hosts
	wanted   concurrency.Latest[string]
	done     concurrency.Latest[string] // the content that the file has
}

// newFollower returns the follower of a host whose state is in dir. The first content
// is on the disk already.
func newFollower(dir, content string) (*follower, error) {
	f := &follower{
		file: filepath.Join(dir, "staged"), replacer: replace.New(dir, []string{}, hclog.NewNullLogger()),
		stages: stage.NewHosts(dir, nil, hclog.NewNullLogger()),
	}
	f.wanted.Set(content)
	f.stages.Begin(stage.Files{Replacer: f.replacer, Compare: f.replacer.Compare}, []config.Stage{fleetStage})
	return f, os.WriteFile(f.file, []byte(content), 0o600)
}

// run follows until ctx ends; then it returns nil.
func (f *follower) run(ctx context.Context, a *agent.Simulated) error {
	var following sync.WaitGroup
	defer following.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	following.Go(func() {
		for content := ""; ctx.Err() == nil; {
			next, err := f.wanted.Wait(ctx, func(c string) bool { return c != content })
			if err != nil {
				return
			}
			content = next
			f.follow(ctx, content)
		}
	})
	return a.RunStages(ctx, f.stages, []config.Stage{fleetStage})
}

// follow returns when the file has the content, or ctx ends.
func (f *follower) follow(ctx context.Context, content string) {
	file := replace.File{Name: "staged", Destination: f.file, Data: []byte(content)}
	s := watch.Staged{
		Stage: fleetStage, Unit: "staged", Files: []replace.File{file}, Content: watch.ContentDigest([]replace.File{file}),
		Inputs: []watch.Input{{ID: "key measured", Name: "key measured", Digest: watch.ContentDigest([]replace.File{{Data: file.Data}})}},
	}
	for ctx.Err() == nil {
		changes, taken := f.stages.Changes(), false
		_, err := f.replacer.Replace(ctx, replace.Unit{Name: s.Unit, Files: s.Files, Gate: func(ctx context.Context) (func(), error) {
			err := f.stages.Take(ctx, s)
			taken = err == nil
			return nil, err
		}})
		f.stages.Replaced(s, taken, err)
		if err == nil {
			f.done.Set(content)
			return
		}
		select {
		case <-ctx.Done():
		case <-changes:
		}
	}
}

// HostStage is the content that the staged file of all hosts is to have.
type HostStage struct {
	Content string
	First   bool // it is on the disk already
}

// Stage returns when the staged files of all agents have a content.
func (h *Host) Stage(s HostStage, _ *None) error {
	if s.First {
		for i, a := range h.agents {
			f, err := newFollower(filepath.Join(h.start.Dir, nodeName(h.start.First+i)), s.Content)
			if err != nil {
				return err
			}
			h.followers = append(h.followers, f)
			h.running.Go(func() { h.over(f.run(h.ctx, a)) })
		}
	}
	for _, f := range h.followers {
		f.wanted.Set(s.Content)
	}
	for i, f := range h.followers {
		if _, err := f.done.Wait(h.ctx, func(c string) bool { return c == s.Content }); err != nil {
			return fmt.Errorf("%d of %d agents have the staged content: %w", i, len(h.followers), context.Cause(h.ctx))
		}
	}
	return nil
}

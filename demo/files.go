package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pmezard/go-difflib/difflib"
	"golang.org/x/sync/errgroup"
)

// pollEvery is how often a file is read: the precision of the times.
const pollEvery = time.Millisecond

// rendered are the files that jorc renders, in the order they are shown.
var rendered = [...]string{"upstreams.conf", "hosts", "services.yaml"}

// snapshot is the content of the files.
type snapshot map[string]string

func (s *stage) read() (snapshot, error) {
	now := snapshot{}
	for _, name := range rendered {
		data, err := os.ReadFile(s.file(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		now[name] = string(data)
	}
	return now, nil
}

func (s *stage) file(name string) string { return filepath.Join(s.dir, "files", name) }

// follow returns when holds has accepted each file.
func (s *stage) follow(ctx context.Context, what string, holds func(text string) bool) (map[string]time.Time, error) {
	at := make([]time.Time, len(rendered))
	g, ctx := errgroup.WithContext(ctx)
	for i, name := range rendered {
		g.Go(func() (err error) {
			at[i], err = await(ctx, s.file(name), holds)
			if err != nil {
				return fmt.Errorf("%s %s: %w", name, what, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	times := map[string]time.Time{}
	for i, name := range rendered {
		times[name] = at[i]
	}
	return times, nil
}

func await(ctx context.Context, file string, holds func(text string) bool) (time.Time, error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		data, err := os.ReadFile(file)
		switch {
		case err == nil && holds(string(data)):
			return time.Now(), nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return time.Time{}, err
		}
		select {
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		case <-tick.C:
		}
	}
}

// names returns a function that reports whether a text names all addresses of with
// and none of without.
func names(with []*instance, without ...*instance) func(string) bool {
	return func(text string) bool {
		for _, i := range with {
			if !strings.Contains(text, i.host) {
				return false
			}
		}
		for _, i := range without {
			if strings.Contains(text, i.host) {
				return false
			}
		}
		return true
	}
}

// diff is what has changed in the files.
func diff(before, after snapshot) (string, error) {
	var b strings.Builder
	for _, name := range rendered {
		text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
			A: difflib.SplitLines(before[name]), B: difflib.SplitLines(after[name]),
			FromFile: name, ToFile: name, Context: 1,
		})
		if err != nil {
			return "", err
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

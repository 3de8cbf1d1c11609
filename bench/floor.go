package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// floor measures how long the machine takes for the unavoidable parts of a change.
type floor struct {
	consul *consul
	dir    string
	index  uint64
	n      int

	query, file samples // ms
}

const floorKey = "bench-floor/key"

func newFloor(ctx context.Context, b *bench, c *consul) (*floor, error) {
	dir, err := b.place("floor")
	if err != nil {
		return nil, err
	}
	f := &floor{consul: c, dir: dir}
	if err := c.putKey(ctx, floorKey, "0"); err != nil {
		return nil, err
	}
	f.index, err = c.block(ctx, floorKey, 0)
	return f, err
}

// sample measures both parts once, the second for a number of files.
func (f *floor) sample(ctx context.Context, files int) error {
	f.n++
	type answer struct {
		index uint64
		at    time.Time
		err   error
	}
	blocked := make(chan answer, 1)
	go func() {
		index, err := f.consul.block(ctx, floorKey, f.index)
		blocked <- answer{index, time.Now(), err}
	}()
	sleep(ctx, 2*time.Millisecond) // until the query is there
	begin := time.Now()
	if err := f.consul.putKey(ctx, floorKey, fmt.Sprint(f.n)); err != nil {
		return err
	}
	a := <-blocked
	if a.err != nil {
		return a.err
	}
	f.index = a.index
	f.query.addMillis(a.at.Sub(begin))
	begin = time.Now()
	var g errgroup.Group
	g.SetLimit(floorWriters)
	for i := range files {
		g.Go(func() error { return f.replace(file(i)) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	f.file.addMillis(time.Since(begin))
	return nil
}

// floorWriters is how many files are written at the same time; more do not speed it
// up.
const floorWriters = 32

// replace writes a file beside another, syncs it and puts it in its place.
func (f *floor) replace(name string) error {
	name = filepath.Join(f.dir, name)
	out, err := os.Create(name + ".new")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "value %d\n", f.n); err != nil {
		return err
	}
	if err := out.Sync(); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// sums are both parts of each sample together, in ms.
func (f *floor) sums() samples {
	all := make(samples, len(f.query))
	for i := range all {
		all[i] = f.query[i] + f.file[i]
	}
	return all
}

func (f *floor) String() string {
	if len(f.query) == 0 {
		return ""
	}
	return number(f.query.median()) + " + " + number(f.file.median())
}

package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestSyncDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := SyncDir(dir); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if err := SyncDir(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}

// TestDirSyncerShares holds the first fsync back until all other callers wait:
// they must share exactly one more.
func TestDirSyncerShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := openDir(t, t.TempDir())
		calls := 0 // fsyncs of one directory never overlap
		release := make(chan struct{})
		s := &DirSyncer{sync: func(*Dir) error {
			if calls++; calls == 1 {
				<-release
			}
			return nil
		}}
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if err := s.Sync(d); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		if calls != 2 {
			t.Errorf("fsyncs: got %d, want 2", calls)
		}
		if len(s.dirs) != 0 {
			t.Errorf("directories kept: got %d, want 0", len(s.dirs))
		}
	})
}

// TestDirSyncerCovers checks the promise itself: an fsync that began after the
// call was made has ended when it returns.
func TestDirSyncerCovers(t *testing.T) {
	t.Parallel()
	d := openDir(t, t.TempDir())
	var begun, ended atomic.Int64 // fsyncs of one directory never overlap
	s := &DirSyncer{sync: func(*Dir) error {
		begun.Add(1)
		ended.Add(1)
		return nil
	}}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 200 {
				before := begun.Load()
				if err := s.Sync(d); err != nil {
					t.Error(err)
				}
				if got := ended.Load(); got <= before {
					t.Errorf("ended: got %d, want more than the %d begun before the call", got, before)
				}
			}
		})
	}
	wg.Wait()
}

func TestDirSyncerError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	s := DirSyncer{sync: func(*Dir) error { return broken }}
	if err := s.Sync(openDir(t, t.TempDir())); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

func BenchmarkDirSyncer(b *testing.B) {
	dir := b.TempDir()
	d := openDir(b, dir)
	var s DirSyncer
	var n atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			name := filepath.Join(dir, strconv.FormatInt(n.Add(1)%64, 10))
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				b.Fatal(err)
			}
			if err := s.Sync(d); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func openDir(t testing.TB, path string) *Dir {
	t.Helper()
	d, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

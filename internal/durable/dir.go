package durable

import (
	"fmt"
	"os"
	"sync"
)

// SyncDir makes renames, creations and removals in dir survive a crash.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	err = d.Sync()
	_ = d.Close() // nothing was written through it
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

// DirSyncer is SyncDir for many goroutines: calls for one directory that
// overlap share fsyncs. Every call is covered by an fsync that began after it,
// so a rename done before the call is on the disk when the call returns.
// The zero value is ready; a DirSyncer must not be copied.
type DirSyncer struct {
	mu   sync.Mutex
	dirs map[string]*dirQueue

	sync func(dir string) error // SyncDir when nil; tests count here
}

// dirQueue is one directory's fsync in flight and the one after it. It exists
// only while an fsync is in flight.
type dirQueue struct {
	next *dirBatch // nil while nobody waits
}

// dirBatch is one fsync and everybody who is covered by it.
type dirBatch struct {
	turn chan struct{} // closed when the fsync before this one is done
	done chan struct{} // closed when err is set
	err  error
}

// SyncDir is the package's SyncDir, shared.
func (s *DirSyncer) SyncDir(dir string) error {
	s.mu.Lock()
	if s.dirs == nil {
		s.dirs = make(map[string]*dirQueue)
	}
	q, busy := s.dirs[dir]
	if !busy {
		q = &dirQueue{}
		s.dirs[dir] = q
		s.mu.Unlock()
		return s.lead(dir, q)
	}
	// The fsync in flight may have begun before the caller's rename: only the next one covers it.
	if b := q.next; b != nil {
		s.mu.Unlock()
		<-b.done
		return b.err
	}
	b := &dirBatch{turn: make(chan struct{}), done: make(chan struct{})}
	q.next = b
	s.mu.Unlock()

	<-b.turn
	b.err = s.lead(dir, q)
	close(b.done)
	return b.err
}

// lead runs one fsync and hands the directory to the batch that gathered
// meanwhile.
func (s *DirSyncer) lead(dir string, q *dirQueue) error {
	run := s.sync
	if run == nil {
		run = SyncDir
	}
	err := run(dir)

	s.mu.Lock()
	defer s.mu.Unlock()
	if q.next == nil {
		delete(s.dirs, dir)
		return err
	}
	close(q.next.turn)
	q.next = nil // it begins now: who comes later needs the one after it
	return err
}

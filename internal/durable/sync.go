package durable

import "sync"

// DirSyncer is Dir.Sync for many goroutines: calls for one directory that
// overlap share fsyncs. Every call is covered by an fsync that began after it,
// so a rename done before the call is on the disk when the call returns.
// The zero value is ready; a DirSyncer must not be copied.
type DirSyncer struct {
	mu   sync.Mutex
	dirs map[inode]*dirQueue

	sync func(d *Dir) error // Dir.Sync when nil; tests count here
}

// inode is which directory it is, whatever its path.
type inode struct{ dev, ino uint64 }

// dirQueue is one directory's fsync in flight and the one after it. It exists
// only while an fsync is in flight.
type dirQueue struct {
	next *dirBatch // nil while no caller waits
}

// dirBatch is one fsync and all callers that it covers.
type dirBatch struct {
	turn chan struct{} // closed when the fsync before this one is done
	done chan struct{} // closed when err is set
	err  error
}

// Sync is d.Sync, shared.
func (s *DirSyncer) Sync(d *Dir) error {
	key := inode{d.stat.Dev, d.stat.Ino}
	s.mu.Lock()
	if s.dirs == nil {
		s.dirs = make(map[inode]*dirQueue)
	}
	q, busy := s.dirs[key]
	if !busy {
		q = &dirQueue{}
		s.dirs[key] = q
		s.mu.Unlock()
		return s.lead(d, key, q)
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
	b.err = s.lead(d, key, q)
	close(b.done)
	return b.err
}

// lead runs one fsync and hands the directory to the batch that gathered
// meanwhile.
func (s *DirSyncer) lead(d *Dir, key inode, q *dirQueue) error {
	run := s.sync
	if run == nil {
		run = (*Dir).Sync
	}
	err := run(d)

	s.mu.Lock()
	defer s.mu.Unlock()
	if q.next == nil {
		delete(s.dirs, key)
		return err
	}
	close(q.next.turn)
	q.next = nil // it begins now: later callers need the next one
	return err
}

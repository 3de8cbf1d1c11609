package watch

import (
	"container/heap"
	"time"
)

// How many jobs may run at one time: those that only render and write, whose
// time goes into waiting for the disk, and those that run commands too, which
// may take long and must not keep the others waiting.
const (
	maxPlainJobs   = 32
	maxCommandJobs = 256
)

// queue holds the units that have a job to come, by when it is due.
type queue struct {
	units   []*unit
	running int
	limit   int
}

// reschedule puts u where its next job belongs.
func (q *queue) reschedule(u *unit) {
	due, ok := u.next()
	switch {
	case !ok && u.place >= 0:
		heap.Remove((*byDue)(q), u.place)
	case ok && u.place >= 0:
		u.due = due
		heap.Fix((*byDue)(q), u.place)
	case ok:
		u.due = due
		heap.Push((*byDue)(q), u)
	}
}

// pop takes out a unit that is due, if there is one and room for its job.
func (q *queue) pop(now time.Time) *unit {
	if len(q.units) == 0 || q.running >= q.limit || q.units[0].due.After(now) {
		return nil
	}
	q.running++
	return heap.Pop((*byDue)(q)).(*unit)
}

// next is when pop would return the next unit; ok is false when it is not
// time that it waits for.
func (q *queue) next() (at time.Time, ok bool) {
	if len(q.units) == 0 || q.running >= q.limit {
		return time.Time{}, false
	}
	return q.units[0].due, true
}

// byDue implements heap.Interface.
type byDue queue

func (q *byDue) Len() int           { return len(q.units) }
func (q *byDue) Less(i, j int) bool { return q.units[i].due.Before(q.units[j].due) }
func (q *byDue) Swap(i, j int) {
	q.units[i], q.units[j] = q.units[j], q.units[i]
	q.units[i].place, q.units[j].place = i, j
}

func (q *byDue) Push(x any) {
	u := x.(*unit)
	u.place = len(q.units)
	q.units = append(q.units, u)
}

func (q *byDue) Pop() any {
	last := len(q.units) - 1
	u := q.units[last]
	u.place = -1
	q.units[last] = nil
	q.units = q.units[:last]
	return u
}

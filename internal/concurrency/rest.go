package concurrency

import "time"

// Rest keeps what is done again and again to a share of the time: each time is followed by a rest of Share times
// its length. Rests may be put off, up to Credit in all, so that what happens after a quiet time does
// not wait for them. It is used by one goroutine at a time.
type Rest struct {
	Share  int
	Credit time.Duration
	Least  time.Duration // of a rest that is taken

	owed  time.Duration
	ended time.Time
}

// After returns for how long to rest after what took so long and ended now.
func (r *Rest) After(took time.Duration, now time.Time) time.Duration {
	rested := max(0, now.Sub(r.ended)-took)
	r.owed = max(0, r.owed-rested) + time.Duration(r.Share)*took
	r.ended = now
	return max(r.Least, r.owed-r.Credit)
}

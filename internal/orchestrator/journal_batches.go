package orchestrator

import (
	"slices"
)

// Sizes of batches. A batch is continued, under a new name, while it is short.
const (
	shortBatch = 64        // events
	shortBytes = 24 << 10  // of a batch that is continued
	longBatch  = 512       // events
	longBytes  = 128 << 10 // of a batch that is written at once
)

// saveEvents numbers events, puts them into batches and drops the oldest. tail
// are the events of the last batch.
func (j *Journal) saveEvents(c *Commit, events []Event) (numbered, tail []Event, parts []viewPart, err error) {
	c.Batches = slices.Clone(j.commit.Value.Batches)
	if len(events) == 0 {
		return nil, j.tail, nil, nil
	}
	for _, e := range events {
		c.Seq++
		e.Seq = c.Seq
		if e.Time.IsZero() {
			e.Time = c.Time
		}
		numbered = append(numbered, e.Bounded())
	}
	if n := len(j.tail) + len(numbered); len(j.tail) > 0 && n <= shortBatch {
		if value, err := encodePart(batchPart{journalFormat, slices.Concat(j.tail, numbered)}); err == nil && len(value) <= shortBytes {
			last := &c.Batches[len(c.Batches)-1]
			last.Last, last.Generation, last.Time = c.Seq, c.Generation, numbered[len(numbered)-1].Time
			c.Batches = j.keptBatches(c)
			return numbered, slices.Concat(j.tail, numbered), []viewPart{{last.key(), value}}, nil
		}
	}
	values := map[string][]byte{}
	for rest := numbered; len(rest) > 0; {
		var value []byte
		n := min(longBatch, len(rest))
		for {
			if value, err = encodePart(batchPart{journalFormat, rest[:n]}); err != nil {
				return nil, nil, nil, err
			}
			if len(value) <= longBytes || n == 1 {
				break
			}
			n /= 2
		}
		b := EventBatch{First: rest[0].Seq, Last: rest[n-1].Seq, Generation: c.Generation, Time: rest[n-1].Time}
		c.Batches = append(c.Batches, b)
		values[b.key()] = value
		tail, rest = rest[:n:n], rest[n:]
	}
	c.Batches = j.keptBatches(c)
	for _, b := range c.Batches {
		if value, ok := values[b.key()]; ok {
			parts = append(parts, viewPart{b.key(), value})
		}
	}
	return numbered, tail, parts, nil
}

// kept are the batches without those that are too old or too many; the last one
// stays.
func (j *Journal) keptBatches(c *Commit) []EventBatch {
	oldest := c.Time.Add(-j.o.MaxAge)
	all := c.Batches
	for len(all) > 1 && (c.Seq-all[0].First+1 > uint64(j.o.MaxEvents) || all[0].Time.Before(oldest)) {
		all = all[1:]
	}
	return all
}

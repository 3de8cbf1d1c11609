package workflow

import (
	"io/fs"
	"path/filepath"
	"slices"
	"time"
)

// Retention bounds the finished jobs that are kept; open ones are always. Zero
// values are the defaults, negative ones are no bound.
type Retention struct {
	Jobs  int           // of each workflow, default 50
	Age   time.Duration // since they finished, default 30 days
	Bytes int64         // of the files of all, default 256 MiB
}

func (k Retention) withDefaults() Retention {
	if k.Jobs == 0 {
		k.Jobs = 50
	}
	if k.Age == 0 {
		k.Age = 30 * 24 * time.Hour
	}
	if k.Bytes == 0 {
		k.Bytes = 256 << 20
	}
	return k
}

// finished is what retention looks at.
type finished struct {
	id       string
	workflow string
	at       time.Time
	bytes    int64
}

// excess names the jobs that have to go: the oldest. Jobs are counted by
// workflow, so that one that runs every minute does not push out the others.
func (k Retention) excess(jobs []finished, now time.Time) []string {
	slices.SortFunc(jobs, func(a, b finished) int { return b.at.Compare(a.at) }) // newest first
	var (
		gone  []string
		bytes int64
	)
	count := map[string]int{}
	for _, j := range jobs {
		bytes += j.bytes
		count[j.workflow]++
		switch {
		case k.Jobs >= 0 && count[j.workflow] > k.Jobs, k.Age >= 0 && now.Sub(j.at) > k.Age, k.Bytes >= 0 && bytes > k.Bytes:
			gone = append(gone, j.id)
		}
	}
	return gone
}

// prune removes the jobs that retention does not keep.
func (r *Runner) prune() error {
	all, err := r.Jobs()
	if err != nil {
		return err
	}
	var jobs []finished
	for i := range all {
		if !all[i].Open && all[i].State != Damaged {
			jobs = append(jobs, finished{id: all[i].ID, workflow: all[i].Workflow, at: all[i].Finished, bytes: size(filepath.Join(r.jobs, all[i].ID))})
		}
	}
	for _, id := range r.o.Keep.excess(jobs, r.now()) {
		if err := r.remove(id); err != nil {
			return err
		}
	}
	return nil
}

// size is how many bytes the files of a directory have; what cannot be read counts nothing.
func size(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

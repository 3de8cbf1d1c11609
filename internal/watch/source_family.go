package watch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// mostNames bounds the answer of a family's query, in bytes. Consul makes the whole list for
// it, so one that is longer is asked for again only after longRest. One that Consul refuses
// costs less.
const (
	mostNames   = 32 << 10
	longRest    = 15 * time.Minute
	refusedRest = time.Minute
)

// emptyGroups follows, with one blocking query, the names of the keys below the prefix of a
// family for those of its groups that hold no key. Consul answers a query on a prefix without
// keys after each write of any key, since its index is that of all keys. A group that is
// empty waits for a name of its own here and asks Consul nothing.
type emptyGroups struct {
	*sources
	family *family
	found  concurrency.Latest[foundNames]
	more   concurrency.Signal // another group is empty
	end    context.CancelFunc // of the query
	rest   time.Duration      // after it

	mu    sync.Mutex
	empty map[string]bool // prefixes of groups
}

// foundNames is the last answer of a family's query.
type foundNames struct {
	known bool
	names []string // in order
	err   error
}

func newEmptyGroups(s *sources, f *family) *emptyGroups {
	return &emptyGroups{sources: s, family: f, more: concurrency.NewSignal(), empty: map[string]bool{}}
}

// run asks Consul while enough groups are empty, until ctx ends.
func (e *emptyGroups) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !e.enough() {
			_ = e.more.Wait(ctx) // the loop ends with ctx
			continue
		}
		var asking context.Context
		asking, e.end = context.WithCancel(ctx)
		e.rest = 0
		q := e.family.scope.query()
		q.MaxPause = keyWithin
		e.follow(asking, q, e.read, e.handle)
		e.end()
		e.found.Set(foundNames{}) // the groups ask themselves
		_ = concurrency.Sleep(ctx, e.rest)
	}
}

func (e *emptyGroups) read(ctx context.Context, q consul.Query) (any, consul.Meta, error) {
	if !e.enough() {
		e.end()
		return nil, consul.Meta{}, context.Canceled
	}
	scoped := e.family.scope.query()
	scoped.Index, scoped.Wait, scoped.Consistent, scoped.MaxBytes = q.Index, q.Wait, q.Consistent, mostNames
	names, meta, err := e.client.KVKeys(ctx, e.family.prefix, "", scoped)
	meta.Partial = meta.Filtered // a right that is granted later ends no query
	odd := func(name string) bool { return strings.ContainsRune(name, utf8.RuneError) }
	switch {
	case errors.Is(err, consul.ErrTooLong), slices.ContainsFunc(names, odd): // in JSON, a key that is not UTF-8 has another name
		e.rest = longRest
	case errors.Is(err, consul.ErrDenied), consul.IsPermanent(err):
		e.rest = refusedRest
	case err == nil && !e.concerns(names):
		meta.Content = noKeys
	}
	if e.rest > 0 {
		e.end()
		return nil, meta, context.Canceled
	}
	return names, meta, err
}

func (e *emptyGroups) handle(u consul.Update[any]) {
	names, _ := u.Value.([]string) // nil with an error
	e.found.Set(foundNames{known: true, names: names, err: u.Err})
}

// enough reports whether so many groups are empty that one query is worth its cost.
func (e *emptyGroups) enough() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.empty) >= max(2, e.family.groups/4)
}

// concerns reports whether one of the names belongs to a group that was empty.
func (e *emptyGroups) concerns(names []string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for prefix := range e.empty {
		if anyBelow(names, prefix) {
			return true
		}
	}
	return false
}

// anyBelow reports whether one of the sorted names begins with prefix.
func anyBelow(names []string, prefix string) bool {
	i, _ := slices.BinarySearch(names, prefix)
	return i < len(names) && strings.HasPrefix(names[i], prefix)
}

// note remembers whether the group of a prefix is empty.
func (e *emptyGroups) note(prefix string, empty bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !empty {
		delete(e.empty, prefix)
		return
	}
	e.empty[prefix] = true
	e.more.Notify()
}

// await returns when the group of a prefix, which was empty, has to ask Consul itself: a key
// may be there, or the family knows nothing. ok is false if it is still empty after most.
// waited: it was empty for a time that only the family knows about.
func (e *emptyGroups) await(ctx context.Context, prefix string, most time.Duration) (ok, waited bool, err error) {
	ask := func(f foundNames) bool {
		return !f.known || f.err != nil || anyBelow(f.names, prefix)
	}
	if first, _ := e.found.Get(); ask(first) {
		return true, false, nil
	}
	within, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	last, err := e.found.Wait(within, ask)
	switch {
	case ctx.Err() != nil:
		return false, true, ctx.Err()
	case err != nil:
		return false, true, nil
	case errors.Is(last.err, consul.ErrUnreachable), errors.Is(last.err, consul.ErrRateLimited):
		return false, true, last.err // asking again would meet the same
	}
	return true, true, nil
}

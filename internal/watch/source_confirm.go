package watch

import (
	"context"
	"errors"
	"strings"

	"github.com/jorc/jorc/internal/consul"
)

// confirm finds out whether what a list did not bring is not there or may not
// be seen. What may not be seen concerns only those who asked for it.
func (w *groupWatcher) confirm(ctx context.Context, pairs *pairsByKey, filtered bool) error {
	var absent []*dependency
	for _, d := range w.group.deps {
		if d.kind == kindPrefix {
			if err := w.confirmPrefix(ctx, pairs, d, filtered); err != nil {
				return err
			}
			continue
		}
		if mark, ok := w.seen[d.id]; pairs.by[d.name] == nil && (!ok || mark != 0) {
			absent = append(absent, d)
		}
	}
	for len(absent) > 0 {
		some := absent[:min(len(absent), rightsAtOnce)]
		absent = absent[len(some):]
		if err := w.rights.confirm(ctx, some, pairs.denied); err != nil {
			return err
		}
	}
	return nil
}

func (w *groupWatcher) confirmPrefix(ctx context.Context, pairs *pairsByKey, d *dependency, filtered bool) error {
	empty := true
	for _, p := range pairs.list {
		if strings.HasPrefix(p.Key, d.name) {
			empty = false
			break
		}
	}
	if filtered && d.name != w.group.prefix { // was it something outside of d?
		_, meta, err := w.client.KVList(ctx, d.name, d.scope.query())
		if err != nil {
			return err
		}
		filtered = meta.Filtered
	}
	err := w.rights.believe(ctx, d, filtered, empty)
	if errors.Is(err, consul.ErrDenied) {
		pairs.denied[d.id] = err
		return nil
	}
	return err
}

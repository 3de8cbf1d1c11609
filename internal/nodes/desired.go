package nodes

import (
	"context"
	"fmt"
	"strings"

	"github.com/jorc/jorc/internal/kv"
)

// Desired reads the desired version; it is empty when none was triggered. It
// returns kv.ErrDamaged for what cannot be a version, consul.ErrDenied or
// consul.ErrUnreachable.
func (l *Ledger) Desired(ctx context.Context) (string, error) {
	e, err := l.desired.Get(ctx)
	if err != nil {
		return "", err
	}
	return l.desiredOf(e)
}

// WatchDesired calls handle with the desired version, and whenever it changes,
// until ctx ends; then it returns ctx's error. err is what Desired returns, or
// why the key cannot be read at present.
func (l *Ledger) WatchDesired(ctx context.Context, handle func(version string, err error)) error {
	return l.desired.Watch(ctx, func(u kv.Update[string]) {
		if u.Err != nil {
			handle("", u.Err)
			return
		}
		handle(l.desiredOf(u.Entry))
	})
}

// desiredOf reads what the key holds; scripts leave a line end behind it.
func (l *Ledger) desiredOf(e kv.Entry[string]) (string, error) {
	version := strings.TrimSpace(e.Value)
	if version == "" {
		return "", nil
	}
	if err := CheckVersion(version); err != nil {
		return "", fmt.Errorf("key %q: %w: %v", l.store.Path(keyDesired), kv.ErrDamaged, err)
	}
	return version, nil
}

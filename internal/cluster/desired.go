package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/jorc/jorc/internal/kv"
)

// Desired reads the desired version; it is empty when none was triggered. It
// returns kv.ErrDamaged for what cannot be a version, consul.ErrDenied or
// consul.ErrUnreachable.
func (c *Cluster) Desired(ctx context.Context) (string, error) {
	e, err := c.desired().Get(ctx)
	if err != nil {
		return "", err
	}
	return c.desiredOf(e)
}

// WatchDesired calls handle with the desired version, and whenever it changes,
// until ctx ends; then it returns ctx's error. err is what Desired returns, or
// why the key cannot be read at present.
func (c *Cluster) WatchDesired(ctx context.Context, handle func(version string, err error)) error {
	return c.desired().Watch(ctx, func(u kv.Update[string]) {
		if u.Err != nil {
			handle("", u.Err)
			return
		}
		handle(c.desiredOf(u.Entry))
	})
}

// desiredOf reads what the key holds; scripts leave a line end behind it.
func (c *Cluster) desiredOf(e kv.Entry[string]) (string, error) {
	version := strings.TrimSpace(e.Value)
	if version == "" {
		return "", nil
	}
	if err := CheckVersion(version); err != nil {
		return "", fmt.Errorf("key %q: %w: %v", c.store.Path(KeyDesired), kv.ErrDamaged, err)
	}
	return version, nil
}

func (c *Cluster) desired() kv.Doc[string] { return kv.NewText(c.store, KeyDesired) }

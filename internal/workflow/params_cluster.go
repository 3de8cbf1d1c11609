package workflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
)

// ParamsOf are the effective params of a node in its cluster, for
// Options.Params; none where there is no such cluster.
func ParamsOf(c *cluster.Cluster, node string) func(ctx context.Context) (profile.Params, error) {
	return func(ctx context.Context) (profile.Params, error) {
		v, err := c.View(ctx, node)
		if errors.Is(err, cluster.ErrNoCluster) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return v.Effective(false).Params(), nil
	}
}

// TokensOf makes tokens for the profiles of clusters below prefix, for
// Options.Tokens; own is the cluster that an empty name means.
func TokensOf(client *consul.Client, prefix, own string) func(ctx context.Context, name string, ttl time.Duration) (string, error) {
	return func(ctx context.Context, name string, ttl time.Duration) (string, error) {
		if name == "" {
			name = own
		} else if err := text.CheckName(name); err != nil {
			return "", fmt.Errorf("cluster: %w: %w", ErrInvalid, err)
		}
		t, err := cluster.New(client, prefix, name).ProfileToken(ctx, ttl)
		switch {
		case errors.Is(err, cluster.ErrNoACLs):
			return "", nil
		case errors.Is(err, cluster.ErrInvalid):
			return "", fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return t.Secret, err
	}
}

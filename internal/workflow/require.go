package workflow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
)

// FromBlocker are Requirements that b checks.
func FromBlocker(b *blocker.Blocker) Requirements { return services{b} }

type services struct{ blocker *blocker.Blocker }

// Missing asks once.
func (s services) Missing(ctx context.Context, r []config.Requires) (string, error) {
	err := s.wait(ctx, r, blocker.Options{Tries: 1})
	var (
		late   *blocker.TimeoutError
		denied *blocker.DeniedError
	)
	switch {
	case errors.As(err, &late):
		return waitingFor(late.States), nil
	case errors.As(err, &denied):
		return waitingFor(denied.States), nil
	}
	return "", err
}

// Wait waits for ever. A token that may not read a service now may do so later.
func (s services) Wait(ctx context.Context, r []config.Requires) error {
	for {
		err := s.wait(ctx, r, blocker.Options{})
		if denied := new(blocker.DeniedError); !errors.As(err, &denied) {
			return err
		}
		if err := concurrency.Sleep(ctx, deniedPause); err != nil {
			return err
		}
	}
}

// deniedPause is how long it takes until a token's rights are checked again.
const deniedPause = 10 * time.Second

func (s services) wait(ctx context.Context, r []config.Requires, o blocker.Options) error {
	needs := make([]blocker.Need, len(r))
	for i := range r {
		n, err := blocker.NeedOf(r[i])
		if err != nil {
			return err
		}
		needs[i] = n
	}
	return s.blocker.Wait(ctx, needs, o, nil)
}

// waitingFor is one line: "waiting for mysql: 0 of 1 functional (none
// registered); redis: 1 of 2 functional".
func waitingFor(states []blocker.State) string {
	var parts []string
	for _, s := range states {
		if s.Satisfied {
			continue
		}
		n := s.Need
		part := fmt.Sprintf("%s: %d of %d %s", n.Target.Ident(), s.Have, n.Target.Count, n.For)
		_, detail, ok := strings.Cut(s.Why, fmt.Sprintf("%d of %d: ", s.Have, n.Target.Count))
		if !ok && s.Denied {
			detail, ok = s.Why, true
		}
		if ok {
			part += " (" + detail + ")"
		}
		parts = append(parts, part)
	}
	return "waiting for " + strings.Join(parts, "; ")
}

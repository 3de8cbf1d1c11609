package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
)

// pollEvery is the interval for states without a blocking query.
const pollEvery = 20 * time.Millisecond

// ready waits until the agent reports that its services are registered and its
// templates rendered. If ctx ends first the error lists what is missing.
func ready(ctx context.Context, status string) error {
	err := errors.New("not asked yet")
	for {
		next := askReady(ctx, status)
		if next == nil {
			return nil
		}
		if ctx.Err() == nil {
			err = next
		}
		if concurrency.Sleep(ctx, pollEvery) != nil {
			return err
		}
	}
}

func askReady(ctx context.Context, status string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, status+"healthz?ready", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", strings.Join(strings.Split(strings.TrimSpace(string(body)), "\n"), "; "))
	}
	return nil
}

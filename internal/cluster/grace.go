package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/profile"
)

// ParamGrace is the param of the profile that says how long a leader has to
// have been failing before another takes its place: a duration such as "2m",
// longer than a leader goes on without Consul.
const ParamGrace = "cluster/leader-grace"

// LeaderGrace reads how long a leader has to have been failing before another
// takes its place. It returns ErrInvalid for a param that does not say so, with
// the default, or what reading the profile returns.
func (c *Cluster) LeaderGrace(ctx context.Context) (time.Duration, error) {
	e, err := c.profile.Get(ctx)
	if err != nil {
		return 0, err
	}
	return graceOf(e.Value, Timing{}.withDefaults())
}

// graceOf returns the profile's grace, or t's where it says none, with
// ErrInvalid where it says none that is possible.
func graceOf(d profile.Document, t Timing) (time.Duration, error) {
	v, ok := d.Params[ParamGrace]
	if !ok || v.IsNull() {
		return t.Replace, nil
	}
	grace, err := parseGrace(v, t)
	if err != nil {
		return t.Replace, fmt.Errorf("param %q: %w; %s counts until then", ParamGrace, err, t.Replace)
	}
	return grace, nil
}

// parseGrace returns ErrInvalid for what is not a duration longer than a leader
// leads without Consul.
func parseGrace(v profile.Value, t Timing) (time.Duration, error) {
	grace, err := time.ParseDuration(v.Raw())
	if err != nil || grace <= t.StepDown {
		return 0, fmt.Errorf("it must be a duration above %s, such as \"2m\": %w", t.StepDown, ErrInvalid)
	}
	return grace, nil
}

package workflow

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/command"
)

// outcome is what an attempt came to.
type outcome int

const (
	outcomeDone outcome = iota
	outcomeFailed
	outcomeReboot
	outcomeStop
	outcomeNotYet
)

// judge says what an attempt came to, and why it did not succeed. err is the
// command's when it could not be started.
func judge(s *step, res command.Result, err error) (outcome, string) {
	switch {
	case err != nil:
		return outcomeFailed, err.Error()
	case res.TimedOut:
		return outcomeFailed, fmt.Sprintf("timed out after %v", time.Duration(s.Timeout))
	case slices.Contains(s.OkExitCodes, res.ExitCode):
		return outcomeDone, ""
	case res.ExitCode == ExitReboot:
		return outcomeReboot, "a reboot is needed" + said(res.Output)
	case res.ExitCode == ExitStop:
		return outcomeStop, "it said to stop here" + said(res.Output)
	case res.ExitCode == ExitNotYet:
		return outcomeNotYet, "not yet" + said(res.Output)
	}
	why := fmt.Sprintf("exit code %d", res.ExitCode)
	if n := res.ExitCode - 128; n > 0 && n <= 64 {
		why += fmt.Sprintf(" (signal %d)", n)
	}
	return outcomeFailed, why + said(res.Output)
}

// maxSaid bounds what a line of output adds to a line about it, in characters.
const maxSaid = 160

// said is the last line of output that says something, after a colon.
func said(output string) string {
	lines := strings.Split(output, "\n")
	for _, line := range slices.Backward(lines) {
		line = strings.TrimSpace(strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return ' '
			}
			return r
		}, line))
		if line == "" {
			continue
		}
		if r := []rune(line); len(r) > maxSaid {
			line = string(r[:maxSaid-1]) + "…"
		}
		return ": " + line
	}
	return ""
}

const (
	firstRetry = time.Second
	maxRetry   = 5 * time.Minute
)

// backoff is the pause after the nth failure (from 1): first, or a second, then
// twice as long each time, up to five minutes or first if that is longer.
func backoff(first time.Duration, n int) time.Duration {
	if first <= 0 {
		first = firstRetry
	}
	most := max(maxRetry, first)
	for ; n > 1 && first < most; n-- {
		first *= 2
	}
	return min(first, most)
}

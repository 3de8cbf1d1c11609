package catalog

import "github.com/jorc/jorc/internal/consul"

// thresholds say how many equal results in a row change a check's state. Zero
// means the first one does. failuresBeforeWarning defaults to
// failuresBeforeCritical.
type thresholds struct {
	successBeforePassing   int
	failuresBeforeWarning  int
	failuresBeforeCritical int
}

// streak counts equal results in a row. The zero value lets the first result
// decide, whatever it is, as Consul does for the checks that it runs.
type streak struct {
	started             bool
	successes, failures int
}

// next takes one result and returns the state to report, or "" when the
// present one stays. The rules are those of Consul's agent/checks StatusHandler.
func (t thresholds) next(s *streak, result string) string {
	if !s.started {
		*s = streak{started: true, successes: t.successBeforePassing, failures: t.failuresBeforeCritical}
	}
	if result != consul.HealthCritical {
		s.successes++
		s.failures = 0
		if s.successes >= t.successBeforePassing {
			return result
		}
		return ""
	}
	s.failures++
	s.successes = 0
	warning := t.failuresBeforeWarning
	if warning == 0 {
		warning = t.failuresBeforeCritical
	}
	switch {
	case s.failures >= t.failuresBeforeCritical:
		return consul.HealthCritical
	case s.failures >= warning:
		return consul.HealthWarning
	default:
		return ""
	}
}

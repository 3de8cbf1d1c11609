package catalog

import (
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// Kinds of checks, as CheckStatus.Kind names them.
const (
	kindScript   = "script"
	kindPresence = "presence"
	kindHTTP     = "http"
	kindTCP      = "tcp"
	kindUDP      = "udp"
	kindGRPC     = "grpc"
	kindH2Ping   = "h2ping"
	kindAlias    = "alias"
	kindTTL      = "ttl"
)

func kindOf(c config.Check) string {
	switch {
	case len(c.Script) > 0, c.Shell != "":
		return kindScript
	case c.HTTP != "":
		return kindHTTP
	case c.TCP != "":
		return kindTCP
	case c.UDP != "":
		return kindUDP
	case c.GRPC != "":
		return kindGRPC
	case c.H2Ping != "":
		return kindH2Ping
	case c.Alias != "":
		return kindAlias
	default:
		return kindTTL
	}
}

func newCheckSpec(c config.Check, serviceID, id string) checkSpec {
	s := checkSpec{
		id: id, name: c.Name, service: serviceID, kind: kindOf(c), initial: c.Status,
		interval: c.Interval, timeout: c.Timeout,
	}
	if s.kind != kindScript {
		return s
	}
	s.command = c.Script
	if len(s.command) == 0 {
		s.command = []string{"/bin/sh", "-c", c.Shell}
	}
	if s.interval <= 0 {
		s.interval = defaultInterval
	}
	if s.timeout <= 0 {
		s.timeout = defaultTimeout
	}
	s.threshold = thresholds{
		successBeforePassing:   c.SuccessBeforePassing,
		failuresBeforeWarning:  c.FailuresBeforeWarning,
		failuresBeforeCritical: c.FailuresBeforeCritical,
	}
	return s
}

// wireCheck is what the agent is told: script checks are TTL checks to it.
func wireCheck(c config.Check, s checkSpec, leastTTL time.Duration) *consul.ServiceCheck {
	w := &consul.ServiceCheck{
		CheckID: s.id, Name: c.Name, Notes: c.Notes,
		DeregisterCriticalServiceAfter: duration(c.DeregisterCriticalServiceAfter),
	}
	switch s.kind {
	case kindScript:
		w.TTL = duration(ttlOf(s, leastTTL))
		return w
	case kindTTL:
		w.TTL = duration(c.TTL)
		return w
	case kindAlias:
		w.AliasService = c.Alias
		return w
	}
	interval := c.Interval
	if interval <= 0 {
		interval = defaultInterval
	}
	w.Interval, w.Timeout = duration(interval), duration(c.Timeout)
	w.HTTP, w.Method, w.Header, w.Body = c.HTTP, c.Method, c.Header, c.Body
	w.TCP, w.UDP = c.TCP, c.UDP
	w.GRPC, w.GRPCUseTLS = c.GRPC, c.GRPCTLS
	w.H2PING, w.H2PingUseTLS = c.H2Ping, c.H2Ping != ""
	w.TLSServerName, w.TLSSkipVerify = c.TLSServerName, c.TLSSkipVerify
	w.SuccessBeforePassing = c.SuccessBeforePassing
	w.FailuresBeforeWarning = c.FailuresBeforeWarning
	w.FailuresBeforeCritical = c.FailuresBeforeCritical
	return w
}

// ttlOf leaves room for two lost heartbeats and a check that takes its time.
func ttlOf(s checkSpec, least time.Duration) time.Duration {
	return max(least, 3*s.interval+s.timeout)
}

// duration is how the API writes d; zero is left out.
func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

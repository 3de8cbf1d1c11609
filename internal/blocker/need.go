package blocker

import (
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/config"
)

// ErrUsage is wrapped by what is wrong with needs and options.
var ErrUsage = errors.New("wrong usage")

// Level says how far an instance must have come.
type Level int

// Levels, each of which includes those before it.
const (
	// Functional: it answers in Consul's DNS. The zero Level, and the default.
	Functional Level = iota
	// Addressable: it is registered, whatever its health.
	Addressable
	// Reachable: it is functional and accepts a TCP connection.
	Reachable
)

func (l Level) String() string {
	switch l {
	case Addressable:
		return "addressable"
	case Reachable:
		return "reachable"
	default:
		return "functional"
	}
}

// ParseLevel reads a Level; empty means Functional.
func ParseLevel(s string) (Level, error) {
	switch s {
	case "", "functional":
		return Functional, nil
	case "addressable":
		return Addressable, nil
	case "reachable":
		return Reachable, nil
	}
	return 0, fmt.Errorf(`%w: %q is none of "addressable", "functional", "reachable"`, ErrUsage, s)
}

// Need is a target and what counts as an instance of it.
type Need struct {
	Target  Target
	For     Level
	Passing bool // only instances of which all checks pass
}

// NeedOf is the need that a requires block of the configuration stands for.
func NeedOf(r config.Requires) (Need, error) {
	t, err := ParseTarget(r.Target)
	if err != nil {
		return Need{}, fmt.Errorf("%s: requires: %w", r.Pos, err)
	}
	if r.Count > 1 {
		if t.Count != 1 && t.Count != r.Count {
			return Need{}, fmt.Errorf("%s: requires %q: count is %d", r.Pos, r.Target, r.Count)
		}
		t.Count = r.Count
	}
	level, err := ParseLevel(r.For)
	if err != nil {
		return Need{}, fmt.Errorf("%s: requires %q: %w", r.Pos, r.Target, err)
	}
	n := Need{Target: t, For: level}
	if err := n.check(false); err != nil {
		return Need{}, fmt.Errorf("%s: requires: %w", r.Pos, err)
	}
	return n, nil
}

// Options say how to wait.
type Options struct {
	Timeout time.Duration // 0: for ever
	Stable  time.Duration // stay satisfied for this long
	Any     bool          // one satisfied need is enough
	DNSOnly bool          // use no HTTP API
	// Tries, when above zero, asks that many times with TrySleep between, and
	// is woken by nothing.
	Tries    int
	TrySleep time.Duration
}

// Check tells what is wrong with needs and options; errors are ErrUsage.
func (o Options) Check(needs []Need) error {
	switch {
	case len(needs) == 0:
		return fmt.Errorf("%w: no target to wait for", ErrUsage)
	case o.Timeout < 0 || o.Stable < 0 || o.TrySleep < 0 || o.Tries < 0:
		return fmt.Errorf("%w: durations and tries cannot be negative", ErrUsage)
	case o.Timeout > 0 && o.Stable >= o.Timeout:
		return fmt.Errorf("%w: a timeout of %v ends before anything can have been stable for %v", ErrUsage, o.Timeout, o.Stable)
	case o.TrySleep > 0 && o.Tries == 0:
		return fmt.Errorf("%w: a pause between tries needs a number of tries", ErrUsage)
	case o.Stable > 0 && o.Tries > 0:
		return fmt.Errorf("%w: plain tries cannot tell that something stayed stable", ErrUsage)
	}
	for _, n := range needs {
		if err := n.check(o.DNSOnly); err != nil {
			return err
		}
	}
	return nil
}

func (n Need) check(dnsOnly bool) error {
	name := n.Target.Ident()
	switch {
	case n.Target.Count < 1:
		return fmt.Errorf("%w: %q: at least 1 instance", ErrUsage, name)
	case dnsOnly && n.For == Addressable:
		return fmt.Errorf("%w: %q: DNS does not tell what is registered, only what is functional", ErrUsage, name)
	case dnsOnly && n.Passing:
		return fmt.Errorf("%w: %q: DNS does not tell passing from warning", ErrUsage, name)
	case n.For == Addressable && n.Passing:
		return fmt.Errorf("%w: %q: addressable is whatever the health is, passing is not", ErrUsage, name)
	case n.Target.Name != "" && (n.For == Addressable || n.Passing):
		return fmt.Errorf("%w: %q: addressable and passing are said of services, not of DNS names", ErrUsage, name)
	case n.For == Addressable:
		return nil
	}
	if _, err := n.Target.DNSName(); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return nil
}

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// parseDuration reads "30s" or "1h30m"; a number needs its unit and less than
// nothing is refused.
func parseDuration(s string) (time.Duration, error) {
	if s != "0" {
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			return 0, fmt.Errorf("%q has no unit: write %q for seconds", s, s+"s")
		}
	}
	v, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf(`%q is no duration: write a number with its unit (ms, s, m, h), such as "30s"`, s)
	case v < 0:
		return 0, fmt.Errorf("%q is negative", s)
	}
	return v, nil
}

// parseWait reads "min:max", or "min" with a maximum of four times that as
// consul-template has it.
func parseWait(s string) (Wait, error) {
	least, most, both := strings.Cut(s, ":")
	var w Wait
	var err error
	if w.Min, err = parseDuration(least); err != nil {
		return Wait{}, err
	}
	if !both {
		if w.Min > math.MaxInt64/4 {
			return Wait{}, fmt.Errorf("%q is too long", s)
		}
		w.Max = 4 * w.Min
		return w, nil
	}
	if w.Max, err = parseDuration(most); err != nil {
		return Wait{}, err
	}
	if w.Max < w.Min {
		return Wait{}, fmt.Errorf("the maximum %s is less than the minimum %s", most, least)
	}
	if w.Min == 0 && w.Max > 0 {
		return Wait{}, errors.New("a maximum without a minimum has no effect")
	}
	return w, nil
}

// parseAddress reads "host", "host:port", "[v6]:port" and a bare IPv6
// address. Port is 0 when there is none.
func parseAddress(s string) (Address, error) {
	bare := s
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		bare = s[1 : len(s)-1]
	}
	if ip, err := netip.ParseAddr(bare); err == nil && (bare == s || ip.Is6()) {
		return Address{Host: bare}, nil
	}
	host, port := s, ""
	if strings.Contains(s, ":") {
		var err error
		if host, port, err = net.SplitHostPort(s); err != nil {
			return Address{}, fmt.Errorf(`%q is no address: write "host", "host:port" or "[::1]:port"`, s)
		}
	}
	if host == "" || strings.ContainsAny(host, "/@[]\\\"") || hasControl(host) || strings.Contains(host, " ") {
		return Address{}, fmt.Errorf("%q names no host", s)
	}
	if port == "" && host == s {
		return Address{Host: host}, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Address{}, fmt.Errorf("%q has no valid port (1 to 65535)", s)
	}
	return Address{Host: host, Port: int(n)}, nil
}

// parseShrink checks "50%" or a count.
func parseShrink(s string) error {
	number, percent := strings.CutSuffix(s, "%")
	n, err := strconv.ParseUint(number, 10, 31)
	switch {
	case err != nil:
		return fmt.Errorf(`%q is neither a share such as "50%%" nor a count`, s)
	case percent && n > 100:
		return fmt.Errorf("%q is more than everything", s)
	}
	return nil
}

// parsePerms checks octal permissions such as "0644".
func parsePerms(s string) (fs.FileMode, error) {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o7777 || len(s) < 3 {
		return 0, fmt.Errorf(`%q are no octal permissions such as "0644"`, s)
	}
	return fs.FileMode(n), nil
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/text"
)

const (
	maxPath = 4096 // bytes, PATH_MAX
)

// parseDuration parses "30s" or "1h30m". A number without a unit and a negative
// duration are errors.
func parseDuration(s string) (time.Duration, error) {
	if s != "0" {
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			return 0, fmt.Errorf("%q has no unit: write %q for seconds", s, s+"s")
		}
	}
	v, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf(`%q is not a duration: write a number with its unit (ms, s, m, h), such as "30s"`, s)
	case v < 0:
		return 0, fmt.Errorf("%q is negative", s)
	}
	return v, nil
}

// parseWait parses "min:max", or "min" with a maximum of four times that, as in
// consul-template.
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

// parseAddress parses "host", "host:port", "[v6]:port" and a bare IPv6 address.
// Without a port, Port is 0.
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
			return Address{}, fmt.Errorf(`%q is not an address: write "host", "host:port" or "[::1]:port"`, s)
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

// checkHostPort checks an address with a port.
func checkHostPort(s string) error {
	a, err := parseAddress(s)
	if err == nil && a.Port == 0 {
		err = fmt.Errorf("%q has no port", s)
	}
	return err
}

// checkListenAddr checks "host:port", where the host may be empty and the port 0.
func checkListenAddr(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf(`%q is not an address to listen on: write "127.0.0.1:8520"`, s)
	}
	return nil
}

// checkConsulAddr checks "host:port" or a URL with http, https or unix. The
// error does not repeat a possible password.
func checkConsulAddr(s string) error {
	scheme, rest, isURL := strings.Cut(s, "://")
	switch {
	case strings.Contains(s, "@"):
		return errors.New("an address must not contain a user or password")
	case !isURL:
		_, err := parseAddress(s)
		return err
	case scheme == "unix" && strings.HasPrefix(rest, "/"):
		return nil
	case scheme == "http" || scheme == "https":
		u, err := url.Parse(s)
		if err != nil || u.RawQuery != "" || u.Fragment != "" {
			return errors.New("it is not an address: it must have a host, and no query or fragment") // which may hold a secret
		}
		_, err = parseAddress(u.Host)
		return err
	}
	return fmt.Errorf(`%q is not an address: write "127.0.0.1:8500", "https://host:8501" or "unix:///path"`, s)
}

func checkVaultAddr(s string) error {
	if strings.Contains(s, "@") {
		return errors.New("an address must not contain a user or password")
	}
	return checkURL(s)
}

// checkURL checks the URL of a check.
func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return errors.New(`write a URL such as "http://127.0.0.1:8080/health"`)
	}
	return nil
}

// checkWebhook checks a URL that may hold a secret, which the error does not
// repeat.
func checkWebhook(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("it is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("it must begin with http:// or https://")
	case u.Host == "":
		return errors.New("it names no host")
	}
	return nil
}

// checkShrink checks "50%" or a count.
func checkShrink(s string) error {
	number, percent := strings.CutSuffix(s, "%")
	n, err := strconv.ParseUint(number, 10, 31)
	switch {
	case err != nil:
		return fmt.Errorf(`%q is neither a share such as "50%%" nor a count`, s)
	case percent && n > 100:
		return fmt.Errorf("%q is more than 100%%", s)
	}
	return nil
}

// checkPerms checks octal permissions such as "0644".
func checkPerms(s string) error {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || fs.FileMode(n) > 0o7777 || len(s) < 3 {
		return fmt.Errorf(`%q are not octal permissions such as "0644"`, s)
	}
	return nil
}

// checkServiceName checks a name or id in the catalog, where other characters
// are allowed than in a segment of a key.
func checkServiceName(s string) error {
	if len(s) > text.MaxName {
		return fmt.Errorf("the name has %d bytes, at most %d are possible", len(s), text.MaxName)
	}
	return text.CheckVisible(s)
}

// checkPrefix checks segments joined by slashes; an empty prefix is the root of
// the KV.
func checkPrefix(s string) error {
	if s == "" {
		return nil
	}
	if strings.HasPrefix(s, "/") || strings.HasSuffix(s, "/") {
		return fmt.Errorf("%q must neither begin nor end with a slash", s)
	}
	for part := range strings.SplitSeq(s, "/") {
		if err := text.CheckSegment(part); err != nil {
			return err
		}
	}
	return nil
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// didYouMean returns the end of a message: the known name that is close to got.
func didYouMean(got string, known []string) string {
	if best := text.Closest(got, known); best != "" {
		return fmt.Sprintf(" Did you mean %q?", best)
	}
	return ""
}

// list joins names as a sentence does.
func list(names []string, word string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " " + word + " " + names[last]
}

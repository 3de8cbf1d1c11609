package profile

import (
	"net/mail"
	"net/netip"
	"net/url"
	"regexp/syntax"
	"strings"
	"time"
)

// formatOf returns the check for a value of "format", nil for a format that is not
// checked.
func formatOf(name string) func(string) bool {
	switch name {
	case "date":
		return func(s string) bool { return parses(time.DateOnly, s) }
	case "date-time":
		return isDateTime
	case "time":
		return func(s string) bool { return isDateTime("2000-01-01T" + s) }
	case "duration":
		return isDuration
	case "email":
		return isEmail
	case "hostname":
		return isHostname
	case "ipv4":
		return func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is4() }
	case "ipv6":
		return func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is6() && a.Zone() == "" }
	case "uri", "iri":
		return func(s string) bool { u, err := parseURI(s); return err == nil && u.IsAbs() }
	case "uri-reference", "iri-reference":
		return func(s string) bool { _, err := parseURI(s); return err == nil }
	case "json-pointer":
		return func(s string) bool { _, err := ParsePointer(s); return err == nil }
	case "regex":
		return func(s string) bool { _, err := syntax.Parse(s, syntax.Perl); return err == nil }
	case "uuid":
		return isUUID
	}
	return nil
}

func parses(layout, s string) bool {
	_, err := time.Parse(layout, s)
	return err == nil
}

// isDateTime reports whether s is a time by RFC 3339. The 60th second is a leap
// second, which Go does not know.
func isDateTime(s string) bool {
	s = strings.ToUpper(s)
	if len(s) > 19 && s[17:19] == "60" && s[14:16] == "59" {
		s = s[:17] + "59" + s[19:]
	}
	return parses(time.RFC3339Nano, s) && !strings.Contains(s, ",")
}

// isDuration reports whether s is a duration by RFC 3339, appendix A.
func isDuration(s string) bool {
	s, ok := strings.CutPrefix(s, "P")
	if weeks, found := strings.CutSuffix(s, "W"); found {
		return ok && isDigits(weeks)
	}
	days, hours, timed := strings.Cut(s, "T")
	return ok && s != "" && units(days, "YMD") && units(hours, "HMS") && (!timed || hours != "")
}

// units reports whether s is numbers with units that follow one another.
func units(s, order string) bool {
	for s != "" {
		i := strings.IndexAny(s, "YMDHS")
		if i < 1 || !isDigits(s[:i]) {
			return false
		}
		at := strings.IndexByte(order, s[i])
		if at < 0 {
			return false
		}
		s, order = s[i+1:], order[at+1:]
	}
	return true
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func isEmail(s string) bool {
	a, err := mail.ParseAddress(s)
	return err == nil && a.Address == s
}

// isHostname reports whether s is a host name by RFC 1123.
func isHostname(s string) bool {
	if len(s) > 253 {
		return false
	}
	for _, label := range strings.Split(strings.TrimSuffix(s, "."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.ContainsFunc(label, func(r rune) bool {
				return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
			}) {
			return false
		}
	}
	return true
}

func parseURI(s string) (*url.URL, error) {
	if strings.ContainsAny(s, ` \<>"{}|^`+"`") {
		return nil, url.InvalidHostError(s)
	}
	return url.Parse(s)
}

func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, c := range []byte(s) {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (c == '-') || !dash && !strings.ContainsRune("0123456789abcdefABCDEF", rune(c)) {
			return false
		}
	}
	return true
}

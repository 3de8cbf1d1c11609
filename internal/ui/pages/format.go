package pages

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/text"
)

// formats are the functions of templates.
var formats = map[string]any{
	"age": text.Age, "clock": clock, "class": class, "stamp": stamp, "web": webLink, "join": strings.Join, "or_none": orNone,
	"states": func() []string {
		return []string{"failed", "working", "down", "given up", "held", "waiting", "done", "apart"}
	},
	"list":   func(all ...string) []string { return all },
	"plural": plural, "changed": cluster.StageInputs.Text,
}

func orNone(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// plural is a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// clock is a time for people, stamp one for programs.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// class returns the CSS class of a state.
func class(state any) string {
	switch fmt.Sprint(state) {
	case "passing", "up", "success", "done", "arrived", "service_up", "node_up", "agent_up", "document_readable", "change_done", "change_gate_passed":
		return "good"
	case "critical", "failed", "down", "absent", "lost", "node_down", "node_gone", "agent_down", "service_down", "document_damaged", "stopped", "change_stopped", "change_host_failed":
		return "bad"
	case "running", "working", "accepted", "batch", "canary", "changing", "settling", "restoring", "change_began", "change_step_began":
		return "busy"
	case "warning", "suspect", "maintenance", "held", "stale", "paused", "given up", "needs-approval", "node_suspect", "stranded", "aborted", "cluster_paused", "restored":
		return "warn"
	}
	return "dim"
}

// webLink returns the address of a log if it is one that a browser may open; empty:
// it is shown as text.
func webLink(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return address
}

// visible replaces characters that a browser does not show, or that change how it
// shows others, by ones that it shows.
func visible(page []byte) []byte {
	odd := func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) && r != '\u00ad' || r == '\u2028' || r == '\u2029')
	}
	if utf8.Valid(page) && bytes.IndexFunc(page, odd) < 0 {
		return page
	}
	return bytes.Map(func(r rune) rune {
		switch {
		case !odd(r):
			return r
		case r < 0x20:
			return 0x2400 + r // the picture of a control character
		case r == 0x7f:
			return 0x2421
		}
		return unicode.ReplacementChar
	}, page)
}

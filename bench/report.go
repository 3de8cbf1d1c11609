package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// report is what a run found.
type report struct {
	Machine   machine
	Rows      []row
	Processes []footprint
	Took      time.Duration
	Quick     bool
}

// row is one thing that was measured for one or both programs.
type row struct {
	what       string
	unit       string
	jorc, peer samples // without peer there is nothing to compare with
	limit      float64 // jorc's p50 must not exceed it; below zero: no target
	floor      string  // what the machine itself takes
	note       string
}

const noTarget = -1

// footprint is what one program cost in a scenario.
type footprint struct {
	scenario, program string
	start             time.Duration // until all files were there
	rss, peak         float64       // MB
	sockets           int           // to Consul
}

func (r *report) markdown() string {
	var b strings.Builder
	b.WriteString("# Benchmarks\n\n")
	b.WriteString("Written by `make bench`; do not edit.\n\n")
	if r.Quick {
		b.WriteString("**A quick run: few samples, nothing to quote.**\n\n")
	}
	b.WriteString(r.Machine.markdown())
	fmt.Fprintf(&b, "The run took %s.\n\n## Results\n\n", r.Took.Round(time.Second))
	table, notes := r.results()
	b.WriteString(layout(table))
	for i, n := range notes {
		fmt.Fprintf(&b, "\n%d. %s", i+1, n)
	}
	if len(notes) > 0 {
		b.WriteString("\n")
	}
	b.WriteString("\n## What the processes took\n\n")
	b.WriteString(layout(r.processes()))
	b.WriteString(howMeasured)
	return b.String()
}

func (r *report) results() (table [][]string, notes []string) {
	table = [][]string{{"what", "unit", "jorc p50", "p95", "peer p50", "p95", "jorc/peer", "target", "met", "floor", "n"}}
	for _, row := range r.Rows {
		what := row.what
		if row.note != "" {
			i := slices.Index(notes, row.note)
			if i < 0 {
				i = len(notes)
				notes = append(notes, row.note)
			}
			what += fmt.Sprintf(" [%d]", i+1)
		}
		jorc, jorc95 := row.jorc.cells()
		peer, peer95 := row.peer.cells()
		table = append(table, []string{
			what, row.unit, jorc, jorc95, peer, peer95, row.ratio(), row.target(), row.met(), dash(row.floor), fmt.Sprint(len(row.jorc)),
		})
	}
	return table, notes
}

// cells are p50 and p95; a single measurement has no p95.
func (s samples) cells() (p50, p95 string) {
	switch len(s) {
	case 0:
		return "–", "–"
	case 1:
		return number(s[0]), "–"
	}
	return number(s.quantile(0.5)), number(s.quantile(0.95))
}

func (r *row) ratio() string {
	if len(r.jorc) == 0 || len(r.peer) == 0 || r.peer.quantile(0.5) == 0 {
		return "–"
	}
	return number(r.jorc.quantile(0.5) / r.peer.quantile(0.5))
}

func (r *row) target() string {
	if r.limit < 0 {
		return "–"
	}
	return "≤ " + strconv.FormatFloat(r.limit, 'f', -1, 64)
}

func (r *row) met() string {
	switch {
	case r.limit < 0 || len(r.jorc) == 0:
		return "–"
	case r.jorc.quantile(0.5) <= r.limit:
		return "yes"
	}
	return "**no**"
}

func (r *report) processes() [][]string {
	table := [][]string{{"scenario", "program", "start, s", "RSS, MB", "peak RSS, MB", "sockets to Consul"}}
	for _, p := range r.Processes {
		table = append(table, []string{
			p.scenario, p.program, number(p.start.Seconds()), number(p.rss), number(p.peak), fmt.Sprint(p.sockets),
		})
	}
	return table
}

// layout draws an aligned Markdown table; the first row is its head.
func layout(table [][]string) string {
	widths := make([]int, len(table[0]))
	for _, cells := range table {
		for i, c := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for n, cells := range table {
		for i, c := range cells {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i == 0 {
				b.WriteString("| " + c + pad + " |")
			} else {
				b.WriteString(" " + pad + c + " |")
			}
		}
		b.WriteString("\n")
		if n > 0 {
			continue
		}
		for i, w := range widths {
			if i == 0 {
				b.WriteString("|" + strings.Repeat("-", w+2) + "|")
			} else {
				b.WriteString(strings.Repeat("-", w+1) + ":|")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

const howMeasured = `
## How it was measured

Reproduce with ` + "`make bench`" + `: about thirteen minutes on two cores; ` + "`go run ./bench -list`" + ` names the scenarios, ` + "`-only REGEX`" + ` picks some,
` + "`-quick`" + ` takes a minute. Times drift with the machine: compare the ratio, not the milliseconds.

- Both programs run at the same time, each on keys, services and files of its own, and take turns: one change for jorc, one for
  consul-template, one measurement of the floor. The next turn begins when the program has come to rest.
- A change is one request to Consul's HTTP API on a connection that stays open. The clock starts before the request is sent and stops when the
  kernel reports (inotify) that the file with the new content was renamed into place; the content is compared afterwards.
- The spacing between two changes of the same thing is above consul-template's own pause of 100 ms between two fetches, and changes of
  different things are about 30 ms apart, so that no program's own pacing is measured.
- *floor* is what the machine took in the same minutes without either program, in ms: a KV put until a blocking query in another goroutine has
  returned, plus write, fsync and rename of a small file (of 100, 32 at a time, where all files change).
- Both use their defaults: no quiescence, no checks, no reloads. consul-template runs with ` + "`log_level = \"err\"`" + `, jorc with ` + "`error`" + `.
- Consul keeps its state in memory and writes no coordinates (` + "`disable_coordinates`" + `), each scenario has a fresh one, and its limits are
  the default ones, except where a note says otherwise.
- *start* runs from the start of the process until the last file is there. RSS is VmRSS after the last change, peak RSS is VmHWM, and
  sockets are the established connections to Consul's HTTP port, the most seen at three moments. CPU is utime + stime of the process.
`

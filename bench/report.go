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
	floors     samples // the same, in the turns of jorc's samples; optional
	ofFloor    float64 // the ratio of jorc's p50 to that of floors must not exceed it; 0: no target
	ofPeer     float64 // the peer's p50 must be at least so many times jorc's; 0: no target
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
	table = [][]string{{"what", "unit", "jorc p50", "p95", "p99", "peer p50", "p95", "p99", "jorc/peer", "floor", "jorc/floor", "target", "met", "n"}}
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
		jorc, peer := row.jorc.cells(), row.peer.cells()
		table = append(table, []string{
			what, row.unit, jorc[0], jorc[1], jorc[2], peer[0], peer[1], peer[2], ratio(row.jorc, row.peer), dash(row.floor), ratio(row.jorc, row.floors),
			row.target(), row.met(), fmt.Sprint(len(row.jorc)),
		})
	}
	return table, notes
}

// cells are p50, p95 and p99; a single measurement has no others.
func (s samples) cells() [3]string {
	switch len(s) {
	case 0:
		return [3]string{"–", "–", "–"}
	case 1:
		return [3]string{number(s[0]), "–", "–"}
	}
	return [3]string{number(s.quantile(0.5)), number(s.quantile(0.95)), number(s.quantile(0.99))}
}

// ratio is that of the medians.
func ratio(of, to samples) string {
	if len(of) == 0 || len(to) == 0 || to.median() == 0 {
		return "–"
	}
	return number(of.median() / to.median())
}

// target lists what is to be reached.
func (r *row) target() string {
	var all []string
	plain := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	if r.ofFloor > 0 {
		all = append(all, "≤ "+plain(r.ofFloor)+" × floor")
	}
	if r.ofPeer > 0 {
		all = append(all, "≤ peer / "+plain(r.ofPeer))
	}
	if r.limit >= 0 {
		all = append(all, "≤ "+plain(r.limit))
	}
	return dash(strings.Join(all, ", "))
}

// met reports whether all targets are reached. A target whose other side was not
// measured is left out.
func (r *row) met() string {
	if len(r.jorc) == 0 {
		return "–"
	}
	var limits []float64
	if r.limit >= 0 {
		limits = append(limits, r.limit)
	}
	if r.ofFloor > 0 && len(r.floors) > 0 {
		limits = append(limits, r.ofFloor*r.floors.median())
	}
	if r.ofPeer > 0 && len(r.peer) > 0 {
		limits = append(limits, r.peer.median()/r.ofPeer)
	}
	switch {
	case len(limits) == 0:
		return "–"
	case r.jorc.median() <= slices.Min(limits):
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
- *floor* is what the machine took in the same turns without either program, in ms: a KV put until a blocking query in another goroutine has
  returned, plus write, fsync and rename of a small file (of 100, 32 at a time, where all files change). The directory is not synced. The column
  shows the medians of both parts. *jorc/floor* is the ratio of two medians: of jorc's times, and of the sums of both parts in each turn.
- A row is met if all its targets are: a multiple of the floor, a part of the peer's median, or a value in the row's unit, of jorc's p50.
- Where the rest of the time and the memory goes: [performance](performance.md).
- Both use their defaults: no quiescence, no checks, no reloads. consul-template runs with ` + "`log_level = \"err\"`" + `, jorc with ` + "`error`" + `.
- Consul keeps its state in memory and writes no coordinates (` + "`disable_coordinates`" + `), each scenario has a fresh one, and its limits are
  the default ones, except where a note says otherwise.
- *start* runs from the start of the process until the last file is there. RSS is VmRSS after the last change, peak RSS is VmHWM, and
  sockets are the established connections to Consul's HTTP port, the most seen at three moments. CPU is utime + stime of the process.
`

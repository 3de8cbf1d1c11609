package main

import (
	"fmt"
	"strings"
	"time"
)

// Targets of the dashboard.
const (
	maxPage      = 500  // ms, the first page
	maxFilter    = 150  // ms, p95
	maxOnScreen  = 1000 // ms
	maxStreamsMB = 50   // MB, of all streams
	changeSlack  = 1.05 // as many requests per change: they vary with what is gathered
)

// uiReport is what a run of -ui found.
type uiReport struct {
	Machine machine
	Took    time.Duration
	Quick   bool

	size                        uiSize
	first, start, hosts, sorted samples // ms, pages
	filterPage, filterAPI       samples // ms
	oneChange, manyChange       float64 // requests to Consul per change
	oneIdle, manyIdle           float64 // requests to Consul without a change
	rssBefore, rssAfter         float64 // MB
	rssPeak                     float64
	reached                     samples // ms, until all streams have a change
	failure, event, tabs        samples // ms, on the screen
	tabStreams                  float64
}

func (r *uiReport) markdown() string {
	var b strings.Builder
	b.WriteString("# The dashboard at scale\n\nWritten by `make bench-ui`; do not edit.\n\n")
	if r.Quick {
		b.WriteString("**A quick run: a small fleet, nothing to quote.**\n\n")
	}
	b.WriteString(r.Machine.markdown())
	fmt.Fprintf(&b, "`jorc ui` shows %d hosts that are in Consul's KV, catalog and gossip, without agents. The run took %s; Consul, the\n"+
		"orchestrator, the server and Chromium shared the machine.\n\n", r.size.hosts, r.Took.Round(time.Second))
	b.WriteString(r.table())
	b.WriteString(uiMeasured)
	return b.String()
}

func (r *uiReport) table() string {
	rows := [][]string{{"what", "unit", "p50", "p95", "longest", "target", "met", "n"}}
	times := func(what string, all samples, limit, measured float64, which string) {
		rows = append(rows, []string{
			what, "ms", number(all.median()), number(all.quantile(0.95)), number(all.most()), which + " ≤ " + number(limit), yesNo(measured <= limit), fmt.Sprint(len(all)),
		})
	}
	one := func(what, unit string, v float64, target string, met bool) {
		rows = append(rows, []string{what, unit, number(v), "–", "–", target, yesNo(met), "1"})
	}
	times("first page of a server that has just started", r.first, maxPage, r.first.most(), "longest")
	times("Needs attention", r.start, maxPage, r.start.quantile(0.95), "p95")
	times("Hosts, 100 rows", r.hosts, maxPage, r.hosts.quantile(0.95), "p95")
	times("Hosts, sorted, 200 rows", r.sorted, maxPage, r.sorted.quantile(0.95), "p95")
	times("Hosts, filtered", r.filterPage, maxFilter, r.filterPage.quantile(0.95), "p95")
	times("API: hosts, filtered", r.filterAPI, maxFilter, r.filterAPI.quantile(0.95), "p95")
	times("a failure of a host on the screen", r.failure, maxOnScreen, r.failure.most(), "longest")
	times("an event on the screen", r.event, maxOnScreen, r.event.most(), "longest")
	times(fmt.Sprintf("a change on the screen of %d tabs", r.size.tabs), r.tabs, maxOnScreen, r.tabs.most(), "longest")
	one(fmt.Sprintf("streams of %d tabs of a browser", r.size.tabs), "", r.tabStreams, "≤ 1", r.tabStreams <= 1)
	one("requests to Consul per change, one stream", "", r.oneChange, "–", true)
	one(fmt.Sprintf("— the same, %d streams", r.size.streams), "", r.manyChange, "≤ "+number(changeSlack*r.oneChange), r.manyChange <= changeSlack*r.oneChange)
	idle := r.size.idle.Round(time.Second)
	one(fmt.Sprintf("requests to Consul in %s without a change, one stream", idle), "", r.oneIdle, "–", true)
	one(fmt.Sprintf("— the same, %d streams", r.size.streams), "", r.manyIdle, "no more", r.manyIdle <= r.oneIdle)
	one(fmt.Sprintf("RSS of the server, growth by %d streams", r.size.streams), "MB", max(0, r.rssAfter-r.rssBefore), "≤ "+number(maxStreamsMB), r.rssAfter-r.rssBefore <= maxStreamsMB)
	one("RSS of the server", "MB", r.rssAfter, "–", true)
	for i, row := range rows {
		if row[5] == "–" {
			rows[i][6] = "–"
		}
	}
	return layout(rows)
}

const uiMeasured = `
## Method

- Pages are timed from the request to the last byte of the answer, over HTTP on loopback. A server that has just started reads the whole fleet before it answers.
- On the screen: from just before the write to Consul's KV to the change of the document in Chromium, by the machine's clock. A failure is the
  report of a host on the page "Needs attention"; an event has passed through a cycle of an orchestrator and its journal before it stands on the page "Events".
- Requests are counted by a proxy between the server and Consul, queries that block among them. Changes follow each other after all streams have received the last one.
- Tabs of one browser share one stream.
- Reproduce with ` + "`make bench-ui`; `go run ./bench -ui -quick`" + ` takes half a minute.
`

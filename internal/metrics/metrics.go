// Package metrics writes metrics in Prometheus's text format, version 0.0.4. A
// collector adds its series when they are asked for; nothing is registered, and a
// program that serves no metrics does no work for them.
package metrics

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Type is the type of a metric.
type Type string

// The types of metrics.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
	Summary   Type = "summary"
)

// Desc describes a metric: all series of one name.
type Desc struct {
	Name, Help string
	Type       Type
	Labels     []string // their names; each series has a value for each
}

// Collector adds series to an exposition. It is called for each request, also by
// several at the same time.
type Collector func(*Exposition)

// Exposition is what one request gets.
type Exposition struct {
	families map[string]*family
}

type family struct {
	desc   Desc
	series map[string][]sample // by the values of the labels
}

type sample struct {
	suffix string // of the name
	labels string // {name="value",…}
	value  float64
}

// Add adds the series of a counter or gauge; one that was added already stays as it
// is. Values that are not UTF-8 are repaired.
func (e *Exposition) Add(d Desc, value float64, labels ...string) {
	if id, text, ok := e.open(d, labels); ok {
		e.put(d, id, sample{labels: braces(text), value: value})
	}
}

// AddHistogram adds a histogram without labels. counts has the observations per
// bucket, and last those beyond all buckets.
func (e *Exposition) AddHistogram(d Desc, buckets []float64, counts []uint64, sum float64) {
	id, _, ok := e.open(d, nil)
	if !ok {
		return
	}
	var n uint64
	for i, c := range counts {
		n += c
		bound := math.Inf(1)
		if i < len(buckets) {
			bound = buckets[i]
		}
		e.put(d, id, sample{"_bucket", braces(pair("le", number(bound))), float64(n)})
	}
	e.put(d, id, sample{"_sum", "", sum})
	e.put(d, id, sample{"_count", "", float64(n)})
}

// AddSummary adds a summary without labels: the values of quantiles from 0 to 1 in
// equal steps.
func (e *Exposition) AddSummary(d Desc, quantiles []float64, sum float64, count int64) {
	id, _, ok := e.open(d, nil)
	if !ok {
		return
	}
	for i, v := range quantiles {
		q := float64(i) / float64(max(1, len(quantiles)-1))
		e.put(d, id, sample{"", braces(pair("quantile", number(q))), v})
	}
	e.put(d, id, sample{"_sum", "", sum})
	e.put(d, id, sample{"_count", "", float64(count)})
}

// open returns the identity and the text of a series' labels; ok is false if the
// series is there already.
func (e *Exposition) open(d Desc, values []string) (id, text string, ok bool) {
	if len(values) != len(d.Labels) {
		panic(fmt.Sprintf("metrics: %s has %d labels, not %d", d.Name, len(d.Labels), len(values))) // a mistake in the program
	}
	if e.families == nil {
		e.families = map[string]*family{}
	}
	f := e.families[d.Name]
	if f == nil {
		f = &family{desc: d, series: map[string][]sample{}}
		e.families[d.Name] = f
	}
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(d.Labels[a], d.Labels[b]) })
	var ids, pairs []string
	for _, i := range order {
		value := strings.ToValidUTF8(values[i], "\uFFFD")
		ids, pairs = append(ids, value), append(pairs, pair(d.Labels[i], value))
	}
	id = strings.Join(ids, "\xff") // no value contains it
	return id, strings.Join(pairs, ","), f.series[id] == nil
}

func (e *Exposition) put(d Desc, id string, s sample) {
	f := e.families[d.Name]
	f.series[id] = append(f.series[id], s)
}

func pair(name, value string) string { return name + `="` + escapeValue(value) + `"` }

func braces(pairs string) string {
	if pairs == "" {
		return ""
	}
	return "{" + pairs + "}"
}

func escapeValue(s string) string { return strings.ReplaceAll(escapeHelp(s), `"`, `\"`) }

func escapeHelp(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "\n", `\n`)
}

func number(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// Bytes returns the text, sorted by names and the values of labels.
func (e *Exposition) Bytes() []byte {
	var b bytes.Buffer
	for _, f := range sorted(e.families) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", f.desc.Name, escapeHelp(f.desc.Help), f.desc.Name, f.desc.Type)
		for _, series := range sorted(f.series) {
			for _, s := range series {
				b.WriteString(f.desc.Name + s.suffix + s.labels + " " + number(s.value) + "\n")
			}
		}
	}
	return b.Bytes()
}

func sorted[V any](m map[string]V) []V {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	all := make([]V, len(names))
	for i, name := range names {
		all[i] = m[name]
	}
	return all
}

// Collect returns what collectors add.
func Collect(collectors ...Collector) *Exposition {
	e := &Exposition{}
	for _, collect := range collectors {
		collect(e)
	}
	return e
}

// Handler answers with what collectors add, compressed if the client accepts that.
func Handler(collectors ...Collector) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := Collect(collectors...).Bytes()
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		if !acceptsGzip(r.Header) {
			_, _ = w.Write(text) // the client has gone
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.Copy(z, bytes.NewReader(text))
		_ = z.Close()
	})
}

func acceptsGzip(h http.Header) bool {
	for part := range strings.SplitSeq(h.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(part, " ", ""), ";")
		if name == "gzip" && strings.Trim(strings.TrimPrefix(weight, "q="), "0.") != "" || name == "gzip" && weight == "" {
			return true
		}
	}
	return false
}

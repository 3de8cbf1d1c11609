package metrics_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/jorc/jorc/internal/metrics"
)

// TestText: series are sorted, once each, and escaped as Prometheus reads them back.
func TestText(t *testing.T) {
	t.Parallel()
	odd := metrics.Desc{Name: "odd_total", Help: "A \\ and\na \"line\".", Type: metrics.Counter, Labels: []string{"z", "a"}}
	e := metrics.Collect(func(e *metrics.Exposition) {
		e.Add(odd, 2, "b", "quote \" line \n back \\ bad \xff")
		e.Add(odd, 1, "a", "x")
		e.Add(odd, 9, "a", "x") // twice
		e.Add(metrics.Desc{Name: "alone", Help: "No labels.", Type: metrics.Gauge}, 1e9)
		e.AddHistogram(metrics.Desc{Name: "took_seconds", Help: "Times.", Type: metrics.Histogram}, []float64{.5, 1}, []uint64{1, 0, 2}, 7.5)
		e.AddSummary(metrics.Desc{Name: "pause_seconds", Help: "Pauses.", Type: metrics.Summary}, []float64{1, 2, 3}, 6, 3)
	})
	want := `# HELP alone No labels.
# TYPE alone gauge
alone 1e+09
# HELP odd_total A \\ and\na "line".
# TYPE odd_total counter
odd_total{a="quote \" line \n back \\ bad ` + "\uFFFD" + `",z="b"} 2
odd_total{a="x",z="a"} 1
# HELP pause_seconds Pauses.
# TYPE pause_seconds summary
pause_seconds{quantile="0"} 1
pause_seconds{quantile="0.5"} 2
pause_seconds{quantile="1"} 3
pause_seconds_sum 6
pause_seconds_count 3
# HELP took_seconds Times.
# TYPE took_seconds histogram
took_seconds_bucket{le="0.5"} 1
took_seconds_bucket{le="1"} 1
took_seconds_bucket{le="+Inf"} 3
took_seconds_sum 7.5
took_seconds_count 3
`
	if got := string(e.Bytes()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// Prometheus's own reader and writer make the same text of it.
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(e.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	for _, name := range []string{"alone", "odd_total", "pause_seconds", "took_seconds"} {
		if _, err := expfmt.MetricFamilyToText(&again, families[name]); err != nil {
			t.Fatal(err)
		}
	}
	if again.String() != want {
		t.Errorf("Prometheus reads\n%s", again.String())
	}
}

// TestNames: the metrics of the process have the names and types of Prometheus's own
// client library, on whose names dashboards are built.
func TestNames(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, f := range families {
		want = append(want, "# TYPE "+f.GetName()+" "+strings.ToLower(f.GetType().String()))
	}
	var got []string
	for line := range strings.Lines(string(metrics.Collect(metrics.Runtime(0), metrics.Process).Bytes())) {
		if strings.HasPrefix(line, "# TYPE ") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestHandler: the answer is compressed only for clients that accept that.
func TestHandler(t *testing.T) {
	t.Parallel()
	h := metrics.Handler(metrics.Process)
	for accept, zipped := range map[string]bool{"": false, "gzip": true, "deflate, gzip;q=0.5": true, "gzip;q=0": false, "zstd": false} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept-Encoding", accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		body := io.Reader(w.Body)
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != zipped {
			t.Errorf("Accept-Encoding %q: compressed: %v", accept, got)
			continue
		}
		if zipped {
			z, err := gzip.NewReader(body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		text, err := io.ReadAll(body)
		if err != nil || !bytes.Contains(text, []byte("process_open_fds ")) {
			t.Errorf("Accept-Encoding %q: got %v, %q", accept, err, text)
		}
	}
}

// TestGCPercent: what the program has set is reported, not the environment.
func TestGCPercent(t *testing.T) {
	t.Parallel()
	if got := string(metrics.Collect(metrics.Runtime(50)).Bytes()); !strings.Contains(got, "\ngo_gc_gogc_percent 50\n") {
		t.Errorf("got\n%s", got)
	}
}

package blocker_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
)

// BenchmarkWait measures the time from the return of a service's registration to
// the end of the wait for it.
func BenchmarkWait(b *testing.B) {
	h := newHost(b)
	w := h.blocker()
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprintf("web-%d", i)
		wait := start(b, w, blocker.Options{}, need(b, name, catalog.Functional))
		wait.until(b, "both have answered", func(s []blocker.State) bool { return s[0].Why == "0 of 1: none registered" })
		if err := h.client.RegisterService(b.Context(), &consul.ServiceRegistration{Name: name, Port: 80}); err != nil {
			b.Fatal(err)
		}
		begin := time.Now()
		if err := wait.end(b); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
}

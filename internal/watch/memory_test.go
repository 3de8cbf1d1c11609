package watch

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
)

// mostPerTemplate bounds the bytes that an engine holds for a small template. They depend
// neither on the machine nor on its load.
const mostPerTemplate = 1500

// TestTemplatesAreSmall is not parallel: it counts the memory of the process.
func TestTemplatesAreSmall(t *testing.T) {
	const n = 2000
	templates := make([]config.Template, n)
	for i := range templates {
		templates[i] = config.Template{
			Name: fmt.Sprint(i), Contents: fmt.Sprintf("value = {{ key %q }}\n", fmt.Sprint("app/key-", i)), Destination: fmt.Sprint("/none/", i),
		}
	}
	before := held()
	e, err := New(Options{Templates: templates, Log: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	got := (held() - before) / n
	t.Logf("%d bytes held for each template", got)
	if got > mostPerTemplate {
		t.Errorf("the engine holds %d bytes for each template, want at most %d", got, mostPerTemplate)
	}
	src := e.units[0].templates[0].src
	plain := perExecution(t, src)
	src.plain = false
	// The race detector allocates, too: the bound is a ratio.
	if whole := perExecution(t, src); plain > whole/2 {
		t.Errorf("an execution allocates %d bytes, want at most half of the %d that it takes with consul-template's functions", plain, whole)
	}
}

// perExecution returns the bytes that an execution allocates.
func perExecution(t *testing.T, src *source) uint64 {
	t.Helper()
	const times = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		if r := src.execute(context.Background(), fixed{"kv.get(app/key-0)": "value"}, nil); r.err != nil || len(r.missing) > 0 {
			t.Fatal(r.err, r.missing)
		}
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / times
}

// held is the memory that the process holds after a collection.
func held() uint64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

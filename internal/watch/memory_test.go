package watch

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
)

// Bounds of what ten thousand templates cost. They count bytes, which depend neither on the
// machine nor on its load.
const (
	mostPerTemplate  = 1500  // bytes that an engine holds for a small template
	mostPerExecution = 16000 // bytes that an execution of one allocates
)

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
	u := e.units[0]
	v := fixed{"kv.get(app/key-0)": "value"}
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	begin := allocated()
	for range 100 {
		if r := u.templates[0].src.execute(context.Background(), v, e.hot); r.err != nil || len(r.missing) > 0 {
			t.Fatal(r.err, r.missing)
		}
	}
	got = (allocated() - begin) / 100
	t.Logf("%d bytes allocated for each execution", got)
	if got > mostPerExecution {
		t.Errorf("an execution allocates %d bytes, want at most %d", got, mostPerExecution)
	}
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

package watch

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/replace"
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

// mostPerSave bounds the bytes that are allocated for each template when data is saved.
const mostPerSave = 250

// TestSavesAllocateLittle is not parallel: it counts the memory of the process. What a save
// allocates for a moment scatters what is kept of the changes meanwhile.
func TestSavesAllocateLittle(t *testing.T) {
	const n = 4 * wirePiece
	s := &snapshot{Format: snapshotFormat, Data: map[string]any{}, Indexes: map[string]uint64{}, Sources: map[string]replace.Hash{}}
	for i := range n {
		id := fmt.Sprint("kv.get(app/key-", i, ")")
		s.Data[id], s.Indexes[id], s.Sources[fmt.Sprint(i)] = "value", uint64(1000+i), replace.Hash{1}
	}
	dir := t.TempDir()
	if err := s.save(dir); err != nil { // gob's tables are made once in a process
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := s.save(dir); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	got, pieces := (after.TotalAlloc-before.TotalAlloc)/n, after.Mallocs-before.Mallocs
	t.Logf("%d bytes allocated for each template, %d pieces for all", got, pieces)
	if got > mostPerSave || pieces > n/2 {
		t.Errorf("a save of %d templates allocates %d bytes for each of them, and %d pieces; want at most %d, and %d", n, got, pieces, mostPerSave, n/2)
	}
}

// perExecution returns the bytes that an execution allocates.
func perExecution(t *testing.T, src *source) uint64 {
	t.Helper()
	const times = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		if r := src.execute(context.Background(), fixed{"kv.get(app/key-0)": "value"}); r.err != nil || len(r.missing) > 0 {
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

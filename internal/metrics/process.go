package metrics

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Runtime collects what Go's runtime reports, by the names of Prometheus's own client
// library.
// percent is by how much the heap may grow until it is collected; 0: as the environment
// says.
func Runtime(percent int) Collector {
	return func(e *Exposition) { collectRuntime(e, percent) }
}

func collectRuntime(e *Exposition, percent int) {
	gauge := func(name, help string, v float64) { e.Add(Desc{Name: name, Help: help, Type: Gauge}, v) }
	counter := func(name, help string, v float64) { e.Add(Desc{Name: name, Help: help, Type: Counter}, v) }

	pauses := debug.GCStats{PauseQuantiles: make([]time.Duration, 5)}
	debug.ReadGCStats(&pauses)
	quantiles := make([]float64, len(pauses.PauseQuantiles))
	for i, d := range pauses.PauseQuantiles {
		quantiles[i] = d.Seconds()
	}
	e.AddSummary(Desc{Name: "go_gc_duration_seconds", Help: "Pauses of garbage collections.", Type: Summary}, quantiles, pauses.PauseTotal.Seconds(), pauses.NumGC)

	threads, _ := runtime.ThreadCreateProfile(nil)
	e.Add(Desc{"go_info", "Always 1; the label is the version of Go.", Gauge, []string{"version"}}, 1, runtime.Version())
	gauge("go_goroutines", "Goroutines.", float64(runtime.NumGoroutine()))
	gauge("go_threads", "Threads of the operating system that were created.", float64(threads))
	gauge("go_sched_gomaxprocs_threads", "GOMAXPROCS: how many threads execute Go code at the same time.", float64(runtime.GOMAXPROCS(0)))
	gauge("go_gc_gogc_percent", "GOGC: by how much the heap may grow until it is collected.", gogc(percent))
	gauge("go_gc_gomemlimit_bytes", "GOMEMLIMIT: the limit of the memory that Go uses.", float64(debug.SetMemoryLimit(-1)))

	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	gauge("go_memstats_alloc_bytes", "Bytes of objects on the heap.", float64(m.Alloc))
	counter("go_memstats_alloc_bytes_total", "Bytes of all objects that were allocated.", float64(m.TotalAlloc))
	gauge("go_memstats_sys_bytes", "Bytes obtained from the system.", float64(m.Sys))
	counter("go_memstats_mallocs_total", "Objects that were allocated.", float64(m.Mallocs))
	counter("go_memstats_frees_total", "Objects that were freed.", float64(m.Frees))
	gauge("go_memstats_heap_alloc_bytes", "Bytes of objects on the heap, as go_memstats_alloc_bytes.", float64(m.HeapAlloc))
	gauge("go_memstats_heap_sys_bytes", "Bytes of the heap obtained from the system.", float64(m.HeapSys))
	gauge("go_memstats_heap_idle_bytes", "Bytes of the heap in unused spans.", float64(m.HeapIdle))
	gauge("go_memstats_heap_inuse_bytes", "Bytes of the heap in spans in use.", float64(m.HeapInuse))
	gauge("go_memstats_heap_released_bytes", "Bytes of the heap that were given back to the system.", float64(m.HeapReleased))
	gauge("go_memstats_heap_objects", "Objects on the heap.", float64(m.HeapObjects))
	gauge("go_memstats_stack_inuse_bytes", "Bytes of stacks in use.", float64(m.StackInuse))
	gauge("go_memstats_stack_sys_bytes", "Bytes of stacks obtained from the system.", float64(m.StackSys))
	gauge("go_memstats_mspan_inuse_bytes", "Bytes of mspan structures in use.", float64(m.MSpanInuse))
	gauge("go_memstats_mspan_sys_bytes", "Bytes of mspan structures obtained from the system.", float64(m.MSpanSys))
	gauge("go_memstats_mcache_inuse_bytes", "Bytes of mcache structures in use.", float64(m.MCacheInuse))
	gauge("go_memstats_mcache_sys_bytes", "Bytes of mcache structures obtained from the system.", float64(m.MCacheSys))
	gauge("go_memstats_buck_hash_sys_bytes", "Bytes of the profiler's hash table.", float64(m.BuckHashSys))
	gauge("go_memstats_gc_sys_bytes", "Bytes of the garbage collector's own data.", float64(m.GCSys))
	gauge("go_memstats_other_sys_bytes", "Bytes of the runtime's other data.", float64(m.OtherSys))
	gauge("go_memstats_next_gc_bytes", "Bytes of the heap at which the next collection begins.", float64(m.NextGC))
	gauge("go_memstats_last_gc_time_seconds", "When the last collection ended, in seconds since 1970.", float64(m.LastGC)/1e9)
}

// gogc returns by how much the heap may grow: percent if that is not 0, or what the
// environment says. Package runtime/metrics knows it too, but its initialisation would be
// a cost of each command.
func gogc(percent int) float64 {
	if percent != 0 {
		return float64(percent)
	}
	text := os.Getenv("GOGC")
	if percent, err := strconv.ParseInt(text, 10, 32); err == nil && percent >= 0 {
		return float64(percent)
	}
	if text == "off" || strings.HasPrefix(text, "-") {
		return math.MaxUint64 // as runtime/metrics reports it
	}
	return 100
}

// Process collects what Linux's /proc has about this process; nothing on other
// systems. What cannot be read is left out.
func Process(e *Exposition) {
	gauge := func(name, help string, v float64) { e.Add(Desc{Name: name, Help: help, Type: Gauge}, v) }
	counter := func(name, help string, v float64) { e.Add(Desc{Name: name, Help: help, Type: Counter}, v) }

	if f := stat(); f != nil {
		counter("process_cpu_seconds_total", "User and system time in seconds.", (f[13]+f[14])/clockTicks)
		gauge("process_virtual_memory_bytes", "Virtual memory.", f[22])
		gauge("process_resident_memory_bytes", "Resident memory.", f[23]*float64(os.Getpagesize()))
		if boot, ok := field("/proc/stat", "btime", 1); ok {
			gauge("process_start_time_seconds", "When the process started, in seconds since 1970.", boot+f[21]/clockTicks)
		}
	}
	if list, err := os.ReadDir("/proc/self/fd"); err == nil {
		gauge("process_open_fds", "Open file descriptors.", float64(len(list)-1)) // without the one that lists them
	}
	if most, ok := field("/proc/self/limits", "Max open files", 1); ok {
		gauge("process_max_fds", "The limit of open file descriptors.", most)
	}
	if most, ok := field("/proc/self/limits", "Max address space", 1); ok {
		gauge("process_virtual_memory_max_bytes", "The limit of virtual memory.", most)
	}
	if in, out, ok := octets(); ok {
		counter("process_network_receive_bytes_total", "Bytes that the process's network namespace received.", in)
		counter("process_network_transmit_bytes_total", "Bytes that the process's network namespace sent.", out)
	}
}

// clockTicks are the units of times in /proc per second, which Linux fixes for all
// programs.
const clockTicks = 100

// stat returns the fields of /proc/self/stat, counted as in proc(5) from 1 and moved by
// one; nil if it cannot be read.
func stat() []float64 {
	data, err := os.ReadFile("/proc/self/stat")
	end := strings.LastIndex(string(data), ")") // the second field, a name, may contain spaces
	if err != nil || end < 0 {
		return nil
	}
	out := make([]float64, 2, 52)
	for _, text := range strings.Fields(string(data)[end+1:]) {
		v, _ := strconv.ParseFloat(text, 64) // the state is a letter
		out = append(out, v)
	}
	if len(out) < 24 {
		return nil
	}
	return out
}

// field returns the n-th word behind a name that begins a line; "unlimited" is -1.
func field(file, name string, n int) (float64, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, name)
		words := strings.Fields(rest)
		if !ok || len(words) < n {
			continue
		}
		if words[n-1] == "unlimited" {
			return -1, true
		}
		v, err := strconv.ParseFloat(words[n-1], 64)
		return v, err == nil
	}
	return 0, false
}

// octets returns the columns InOctets and OutOctets of /proc/self/net/netstat, whose
// lines come in pairs: names, then values.
func octets() (in, out float64, ok bool) {
	data, err := os.ReadFile("/proc/self/net/netstat")
	if err != nil {
		return 0, 0, false
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "IpExt:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		for i, name := range names[:min(len(names), len(words))] {
			v, err := strconv.ParseFloat(words[i], 64)
			switch {
			case err != nil:
			case name == "InOctets":
				in, ok = v, true
			case name == "OutOctets":
				out = v
			}
		}
	}
	return in, out, ok
}

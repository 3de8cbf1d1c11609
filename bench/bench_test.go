package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
)

// TestMain runs agents in place of the tests where a fleet of the tests asks for it.
func TestMain(m *testing.M) {
	if !slices.Equal(os.Args[1:], []string{hostFlag}) {
		os.Exit(m.Run())
	}
	if err := runHost(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// tinySize proves that everything works, and measures nothing.
func tinySize() size {
	return size{
		samples: 3, few: 2, warmUp: 1, keys: []int{5}, services: 60, files: 3,
		rest: 10 * time.Millisecond, idle: 2500 * time.Millisecond, raft: 100 * time.Millisecond, starts: 1,
		flips: 8, instances: 50, watchers: 4, absent: 5, busy: 100 * time.Millisecond,
	}
}

// TestScenarios runs every kind of scenario with the real jorc, in miniature
// and without consul-template.
func TestScenarios(t *testing.T) {
	t.Parallel()
	program := buildJorc(t)
	b, err := newBench(programs{jorc: program, consul: consultest.Binary(t)}, tinySize(), t.TempDir(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	tiny := keyWork(5, b.size)
	tiny.idle = true
	all := append(scenarios(b.size), scenario{"start", tiny.startUp}, scenario{"idle", tiny.carryOut})
	// Their windows are too long for a test; what they are made of is in the others.
	few := all[:0]
	for _, s := range all {
		if s.name != "wait" && s.name != "raft" {
			few = append(few, s)
		}
	}
	r, err := b.run(t.Context(), few, regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if len(row.jorc) == 0 || row.jorc.quantile(0.5) < 0 {
			t.Errorf("%s: jorc = %v; want measurements", row.what, row.jorc)
		}
	}
	for _, p := range r.Processes {
		if p.program != jorc || p.rss <= 0 || p.peak < p.rss || p.sockets < 1 || p.start <= 0 {
			t.Errorf("footprint = %+v; want one of jorc, all above zero", p)
		}
	}
	text := r.markdown()
	for _, want := range []string{"| change → file, 5 keys ", "| change → last file, 3 templates", "| an absent key appears → file, 5 absent keys", "| processor time of the program and its Consul beyond that of the writes, 5 absent keys", "registered again without checks", "- Consul: Consul v"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}

// TestDNSProxyCounts: what is passed on is counted, over UDP and TCP.
func TestDNSProxyCounts(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	proxy, err := newDNSProxy(s.DNSAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.close()
	begin := time.Now()
	for _, network := range []string{"udp", "tcp"} {
		r := resolver(network, proxy.address)
		for range 2 {
			if _, err := r.LookupHost(t.Context(), "consul.service.consul."); err != nil {
				t.Fatalf("%s: %v", network, err)
			}
		}
	}
	proxy.mu.Lock()
	asked := len(proxy.asked)
	proxy.mu.Unlock()
	if asked < 4 || proxy.rate(begin) <= 0 {
		t.Errorf("%d queries counted, %f a second; want at least 4", asked, proxy.rate(begin))
	}
}

func TestCommandRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-unknown"}, {"-only", "("}, {"-jorc", "/nowhere/jorc"}} {
		var out, log strings.Builder
		if err := command(context.Background(), args, &out, &log); err == nil || out.Len() > 0 {
			t.Errorf("bench %v = %v, %q; want an error and no output", args, err, out.String())
		}
	}
}

// buildJorc returns the path of a jorc that was built for the test.
func buildJorc(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	consultest.Build(t, dir, "cmd/jorc")
	return filepath.Join(dir, "jorc")
}

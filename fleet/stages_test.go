//go:build fleet

package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleettest"
	"github.com/jorc/jorc/internal/stage"
)

// stagedConfig is a service whose check fails while its file holds a bad value. Each
// check and each reload notes what it saw.
const stagedConfig = `
member { zone = "$ZONE" }
service "web" {
  port = 8080
  check {
    script   = ["/bin/sh", "-c", "cat $DIR/limit >> $DIR/health; if grep -q bad $DIR/limit; then exit 2; fi"]
    interval = "1s"
  }
}
template "limit" {
  contents    = "{{ key \"jorc/default/test/limit\" }}\n"
  destination = "$DIR/limit"
  check       = ["test", "-s", "{{.Staged}}"]
  reload      = ["/bin/sh", "-c", "cat $DIR/limit >> $DIR/reloads"]
  stage "limit" {
    $STAGE
    min_healthy = "2s"
  }
}
`

// staged starts a fleet in which all hosts have the file, in two zones; more is added to
// their configuration. Without a node_deadline among settings a host has 7 s.
func staged(t *testing.T, n int, settings string, more ...string) *fleettest.Fleet {
	t.Helper()
	if !strings.Contains(settings, "node_deadline") {
		settings += "\nnode_deadline = \"7s\""
	}
	var specs []fleettest.HostSpec
	for i := range n {
		conf := strings.NewReplacer("$ZONE", string(rune('a'+i%2)), "$STAGE", settings).Replace(stagedConfig) + strings.Join(more, "\n")
		specs = append(specs, fleettest.HostSpec{Name: fmt.Sprintf("web-%02d", i+1), Config: conf, Orchestrator: i < 3})
	}
	return fleettest.New(t, fleettest.Options{Hosts: specs, Before: func(f *fleettest.Fleet) {
		f.Put("test/limit", "first")
		for _, h := range f.Hosts {
			h.Write("limit", "first\n")
		}
	}})
}

// badHosts samples the files of all hosts until stop is called, which returns the largest
// number of hosts with a bad file at one moment.
func badHosts(f *fleettest.Fleet) (stop func() (most int)) {
	ctx, cancel := context.WithCancel(context.Background())
	var sampling sync.WaitGroup
	most := 0
	sampling.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			n := 0
			for _, h := range f.Hosts {
				if data, err := os.ReadFile(h.Path("limit")); err == nil && strings.Contains(string(data), "bad") {
					n++
				}
			}
			most = max(most, n)
		}
	})
	return func() int {
		cancel()
		sampling.Wait()
		return most
	}
}

// took are the hosts that ever reloaded, or checked, a value.
func took(f *fleettest.Fleet, value string) (hosts []string) {
	for _, h := range f.Hosts {
		if strings.Contains(h.File("reloads")+h.File("health"), value+"\n") {
			hosts = append(hosts, h.Name)
		}
	}
	return hosts
}

// hasFile waits until one of hosts has a value in its file, and returns it.
func hasFile(f *fleettest.Fleet, value string) (found *fleettest.Host) {
	f.Eventually("a host to have "+value, func(context.Context) error {
		for _, h := range f.Hosts {
			if h.File("limit") == value+"\n" {
				found = h
				return nil
			}
		}
		return errors.New("no host has it")
	})
	return found
}

// restored waits until a host has its old file and the stage is stopped because of it.
func restored(f *fleettest.Fleet, h *fleettest.Host, stopped int) {
	f.Eventually(h.Name+" to have its old file", func(context.Context) error {
		var stops stage.Stops
		if err := json.Unmarshal([]byte(f.Observer.Keys()[cluster.StageStopsKey("limit")].Value), &stops); err != nil {
			return err
		}
		if h.File("limit") != "first\n" || len(stops.Stops) < stopped || stops.Stops[len(stops.Stops)-1].Node != h.Name {
			return fmt.Errorf("its file holds %q; stopped by %+v", h.File("limit"), stops)
		}
		return nil
	})
}

func putLimit(f *fleettest.Fleet, value string) {
	f.WaitWritable()
	f.Put("test/limit", value)
}

// TestStagedValue: of 20 hosts at most one ever has a value that breaks its health
// check. It gets its old file back, and the others are untouched, whatever fails
// meanwhile.
func TestStagedValue(t *testing.T) {
	t.Parallel()
	f := staged(t, 20, "max_parallel = 1")
	most := badHosts(f)
	for i, fault := range []struct {
		name   string
		during func(bad *fleettest.Host)
	}{
		{"nothing", func(*fleettest.Host) {}},
		{"orchestrators killed", func(*fleettest.Host) {
			for _, h := range f.Hosts[:3] {
				h.Kill9All()
			}
			for _, h := range f.Hosts[:3] {
				h.Boot()
			}
		}},
		{"leader change", func(*fleettest.Host) {
			s := f.Leader()
			s.Kill()
			s.Start()
		}},
		{"Consul frozen", func(bad *fleettest.Host) {
			for _, s := range f.Servers {
				s.Freeze()
			}
			f.Eventually("the old file while Consul is frozen", func(context.Context) error {
				if got := bad.File("limit"); got != "first\n" {
					return fmt.Errorf("got %q", got)
				}
				return nil
			})
			for _, s := range f.Servers {
				s.Thaw()
			}
		}},
		{"bad host rebooted", func(bad *fleettest.Host) { bad.Reboot() }},
	} {
		t.Log(fault.name)
		value := fmt.Sprintf("bad-%d", i)
		putLimit(f, value)
		bad := hasFile(f, value)
		fault.during(bad)
		restored(f, bad, 1)
		// The fault may have come before its reload: then no host took the value.
		if got := took(f, value); slices.ContainsFunc(got, func(host string) bool { return host != bad.Name }) {
			t.Errorf("%s: %v had the value, want %s alone", fault.name, got, bad.Name)
		}
		// A host that was rebooted may not have reached its Consul in time.
		if got := f.Jorc("stage", "show", "limit").OK(); !strings.Contains(got, "key jorc/default/test/limit") || fault.name == "nothing" && !strings.Contains(got, "web: ") {
			t.Errorf("%s: stage show:\n%s", fault.name, got)
		}
	}
	f.Eventually("an event for each fault", func(context.Context) error {
		if got := f.Jorc("cluster", "events", "--kind", "change_stopped").OK(); strings.Count(got, "change_stopped") < 5 {
			return errors.New(got)
		}
		return nil
	})
	putLimit(f, "first") // the value from before ends the stop by itself
	f.Eventually("no stop", func(context.Context) error {
		if got := f.Jorc("stage", "list", "-o", "plain").OK(); !strings.HasPrefix(got, "limit\tdone\t20\t0\t0\t0\t") {
			return errors.New(got)
		}
		return nil
	})
	if n := most(); n != 1 {
		t.Errorf("at most %d hosts were bad at one moment, want 1", n)
	}
}

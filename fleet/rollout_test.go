//go:build fleet || soak

package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/fleettest"
	"github.com/jorc/jorc/internal/pace"
)

// What brings a host to a version. Names of versions say what happens:
// "…bad-NODE" fails on that node and "…bad-all" everywhere; "…gate" waits on
// each host for a file `go`.
const (
	webStatic = `
static {
  workflow   = "converge"
  validation = "validate"
}
workflow "converge" {
  task "begin" {
    script     = "echo begin {{quote .Version}} $(date +%s%N) >> $DIR/converged"
    idempotent = true
  }
  task "drain" {
    command    = ["$SELF", "role:drain", "http://$IP:8080", "1s"]
    timeout    = "90s"
    idempotent = true
  }
  task "gate" {
    script     = "/bin/sh $DIR/gate.sh {{quote .Version}} {{quote .Node}}"
    timeout    = "5m"
    idempotent = true
  }
  task "switch" {
    script     = "/bin/sh $DIR/switch.sh {{quote .Version}}"
    timeout    = "90s"
    idempotent = true
  }
}
workflow "validate" {
  task "answers" {
    command = ["$SELF", "role:answers", "http://$IP:8080", "{{.Version}}"]
  }
}
`
	otherStatic = `
static {
  workflow = "converge"
}
workflow "converge" {
  task "begin" {
    script     = "echo begin {{quote .Version}} $(date +%s%N) >> $DIR/converged"
    idempotent = true
  }
  task "gate" {
    script     = "/bin/sh $DIR/gate.sh {{quote .Version}} {{quote .Node}}"
    timeout    = "5m"
    idempotent = true
  }
}
`
	gateScript = `
case $1 in
*bad-$2|*bad-all) echo "version $1 does not work on $2" >&2; exit 1 ;;
*gate) echo "gate $1" >> $DIR/converged; while [ ! -e $DIR/go ]; do sleep 0.05; done ;;
esac
`
	switchScript = `
echo "$1" > $DIR/version
p=$(cat $DIR/web.pid) && [ /proc/$p/ns/net -ef /proc/self/ns/net ] && kill -9 $p
exec $SELF role:answers http://$IP:8080 "$1"
`
)

// rolling is the usual fleet whose hosts have versions; all are at v1.
func rolling(t *testing.T) *fleettest.Fleet {
	t.Helper()
	f := usual(t, webStatic, otherStatic, "gate.sh", gateScript, "switch.sh", switchScript)
	healthy(t, f)
	f.Jorc("update", "trigger", "v1").OK()
	allAt(f, "v1")
	healthy(t, f)
	return f
}

// versionOf is what a node's document says that it runs.
func versionOf(k fleettest.Keys, node string) string {
	var doc struct {
		Version string `json:"version"`
	}
	_ = json.Unmarshal([]byte(k["nodes/"+node].Value), &doc) // what is damaged has no version
	return doc.Version
}

// allAt waits until all hosts run a version and none has a grant.
func allAt(f *fleettest.Fleet, version string) {
	f.Eventually("all to run "+version, func(context.Context) error {
		k := f.Observer.Keys()
		var at []string
		ok := true
		for _, h := range f.Hosts {
			v := versionOf(k, h.Name)
			at = append(at, h.Name+": "+v)
			ok = ok && v == version
		}
		if holders := k.Granted(); !ok || len(holders) > 0 {
			return fmt.Errorf("%s; grants have %v", strings.Join(at, ", "), holders)
		}
		return nil
	})
}

// atGate waits until so many hosts have a grant, are drained and wait in the gate
// of a version, and returns them.
func atGate(f *fleettest.Fleet, version string, n int) []*fleettest.Host {
	var found []*fleettest.Host
	f.Eventually(fmt.Sprintf("%d hosts to be at work on %s", n, version), func(context.Context) error {
		found = nil
		k := f.Observer.Keys()
		for _, name := range k.Granted() {
			if h := f.Host(name); strings.Contains(h.File("converged"), "gate "+version+"\n") && versionOf(k, name) != version {
				found = append(found, h)
			}
		}
		if len(found) < n {
			return fmt.Errorf("grants have %v", k.Granted())
		}
		return nil
	})
	return found
}

// holder is one of them.
func holder(f *fleettest.Fleet, version string) *fleettest.Host { return atGate(f, version, 1)[0] }

// open opens the gate of hosts.
func open(hosts ...*fleettest.Host) {
	for _, h := range hosts {
		h.Write("go", "")
	}
}

// shut shuts the gates again.
func shut(hosts ...*fleettest.Host) {
	for _, h := range hosts {
		h.Remove("go")
	}
}

// status is what `update show -o json` tells.
type status struct {
	Version string `json:"version"`
	State   string `json:"state"`
	Phase   string `json:"phase"`
	Now     struct {
		Members, Done, Failed, Working, Down, Waiting int
	} `json:"now"`
	Grants []struct {
		Node  string    `json:"node"`
		State string    `json:"state"`
		Since time.Time `json:"since"`
	} `json:"grants"`
	Failed []struct {
		Node    string    `json:"node"`
		Reason  string    `json:"reason"`
		Since   time.Time `json:"since"`
		Granted bool      `json:"granted"`
	} `json:"failed"`
	Stopped *struct {
		Reason string `json:"reason"`
	} `json:"stopped"`
	RollbackOf *struct {
		Version string `json:"version"`
	} `json:"rollback_of"`
	Waits []string `json:"waits"`
}

func show(t *testing.T, f *fleettest.Fleet) status {
	t.Helper()
	var s status
	out := f.Jorc("update", "show", "-o", "json").OK()
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("update show printed %s: %v", out, err)
	}
	return s
}

// waitExit waits for the rollout and wants an exit code.
func waitExit(t *testing.T, f *fleettest.Fleet, code int) {
	t.Helper()
	if r := f.Jorc("update", "wait", "--timeout", "2m"); r.Code != code {
		t.Fatalf("update wait exited %d, want %d\nstdout: %s\nstderr: %s\nthe rollout: %s", r.Code, code, r.Stdout, r.Stderr, f.Jorc("update", "show").Stdout)
	}
}

// turn makes the name of a version of which a node is to have the nth place,
// from 0 on, when all go in one order.
func turn(f *fleettest.Fleet, node string, n int, suffix string) string {
	for i := 0; ; i++ {
		version := fmt.Sprintf("v%d%s", i, suffix)
		place := 0
		mine := pace.Policy{}.KeyOf(version, node, nil, "")
		for _, h := range f.Hosts {
			if (pace.Policy{}).KeyOf(version, h.Name, nil, "").Compare(mine) < 0 {
				place++
			}
		}
		if place == n {
			return version
		}
	}
}

// begun are the hosts that have begun to converge to a version.
func begun(f *fleettest.Fleet, version string) []string {
	var names []string
	for _, h := range f.Hosts {
		if strings.Contains(h.File("converged"), "begin "+version+" ") {
			names = append(names, h.Name)
		}
	}
	return names
}

// orchestrator is the host that holds the orchestrator's lock.
func orchestrator(t *testing.T, f *fleettest.Fleet) *fleettest.Host {
	t.Helper()
	var node string
	f.Eventually("somebody to orchestrate", func(ctx context.Context) error {
		session := f.Observer.Keys()["orchestrate/lock"].Session
		var info []struct{ Node string }
		if err := f.API(ctx, http.MethodGet, "/v1/session/info/"+session, nil, &info); err != nil {
			return err
		}
		if session == "" || len(info) != 1 {
			return fmt.Errorf("the lock has the session %q: %v", session, info)
		}
		node = info[0].Node
		return nil
	})
	return f.Host(node)
}

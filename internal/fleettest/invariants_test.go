//go:build linux

package fleettest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/web"
)

// document is a key's value as jorc writes it.
func document(t *testing.T, v any) Key {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return Key{Value: string(data)}
}

func wantBroken(t *testing.T, what string, err error, says string) {
	t.Helper()
	if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
		t.Errorf("%s: got %v, want %q", what, err, says)
	}
}

// TestInvariants: what the observer holds a fleet to can be broken, by documents
// as jorc writes them.
func TestInvariants(t *testing.T) {
	t.Parallel()
	group := Keys{
		"slots/group/g":       {Value: `{"format":1,"max":1}`},
		"slots/claim/a/g/1":   {Value: `{"format":1}`, Session: "s", Created: 1},
		"slots/claim/a/g/2":   {Value: `{"format":1,"holds":true}`, Session: "s", Created: 2},
		"slots/claim/b/g/3":   {Value: `{"format":1,"holds":true}`, Session: "s", Created: 3},
		"slots/claim/c/g/4":   {Value: `{"format":1}`, Session: "s", Created: 4},
		"slots/claim/d/h/5":   {Value: `{"format":1,"holds":true}`, Session: "s", Created: 0},
		"slots/claim/e/g/old": {Value: `{"format":1,"holds":true}`},
	}
	wantBroken(t, "two hold", AtMost("g", 1)(group), "[a b]")
	wantBroken(t, "two may hold", AtMost("g", 2)(group), "")

	at := document(t, cluster.Report{Version: "v1"})
	wantBroken(t, "one version", oneVersion(Keys{"nodes/a": at, "running_version/v1/a": {}, "running_version/v1/b": {}}), "")
	wantBroken(t, "two versions", oneVersion(Keys{"running_version/v1/a": {}, "running_version/v2/a": {}}), "[v1 v2]")

	checks := []Check{{Node: "a", CheckID: nodeMaintenance}, {Node: "b", CheckID: serviceMaintenance + "web"}, {Node: "c", CheckID: "disk"}}
	wantBroken(t, "two in maintenance", FewInMaintenance(1)(checks), "[a b]")
	wantBroken(t, "two may be", FewInMaintenance(2)(checks), "")
}

// TestTerms: the check fails if two hosts orchestrate at the same moment, but a host
// that was frozen may report its former term until it notices that it has ended.
func TestTerms(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	active := func(since int) []web.Orchestrator { return []web.Orchestrator{{Active: true, Since: at(since)}} }
	newTerms := func() *terms { return &terms{all: map[string]term{}, excused: map[string]bool{}} }

	one := newTerms()
	one.add("a", active(0), at(5))
	one.add("b", active(6), at(9))
	wantBroken(t, "one after the other", one.overlap(), "")
	one.add("a", active(0), at(7))
	wantBroken(t, "both", one.overlap(), "a orchestrated from")

	woken := newTerms()
	woken.add("a", active(0), at(5))
	woken.add("b", active(6), at(9))
	woken.excuse("a")
	woken.add("a", active(0), at(7))
	wantBroken(t, "one that woke up", woken.overlap(), "")
	woken.add("a", []web.Orchestrator{{}}, at(8)) // it has noticed
	woken.add("a", active(0), at(9))
	wantBroken(t, "it does so again", woken.overlap(), "a orchestrated from")
}

// verdict is a test that notes whether it has failed.
type verdict struct {
	testing.TB
	failed bool
}

func (v *verdict) Helper()               {}
func (v *verdict) Logf(string, ...any)   {}
func (v *verdict) Errorf(string, ...any) { v.failed = true }

// TestCheckSemaphore: the check fails if more hosts hold slots than there are, also
// when a release was not recorded, and if no host held a slot.
func TestCheckSemaphore(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	hold := func(granted, released int) Hold {
		h := Hold{Granted: begin.Add(time.Duration(granted) * time.Second)}
		if released > 0 {
			h.Released = begin.Add(time.Duration(released) * time.Second)
			h.Given = h.Released
		}
		return h
	}
	for _, test := range []struct {
		name   string
		holds  []Hold
		broken bool
	}{
		{"none", nil, true},
		{"in turn", []Hold{hold(1, 2), hold(3, 4), hold(5, 0)}, false},
		{"both", []Hold{hold(1, 4), hold(2, 3)}, true},
		{"for good", []Hold{hold(1, 0), hold(2, 3)}, true},
	} {
		v := &verdict{TB: t}
		CheckSemaphore(v, 1, test.holds)
		if v.failed != test.broken {
			t.Errorf("%s: failed is %v", test.name, v.failed)
		}
	}
}

//go:build fleet

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/jorc/jorc/internal/fleettest"
)

// TestPartitions: hosts with the majority continue, the others keep what they
// have, and when all is well again all follow by themselves.
func TestPartitions(t *testing.T) {
	t.Parallel()
	f := usual(t, "", "")
	healthy(t, f)
	everybody := "\nweb web-1 web-2 web-3\n"
	value(f, "one")
	for _, h := range f.Hosts {
		waitFile(f, h, "value one"+everybody)
	}

	t.Log("a minority is cut off")
	minority := []*fleettest.Host{f.Host("web-2"), f.Host("web-3"), f.Host("db-1")}
	majority := []*fleettest.Host{f.Host("web-1"), f.Host("edge-1"), f.Operator}
	small := append(fleettest.Machines(minority), f.Servers[0].Machine)
	large := append(fleettest.Machines(majority), f.Servers[1].Machine, f.Servers[2].Machine)
	kept := watchFiles(minority, "file")
	f.Partition(small, large)
	value(f, "two")
	for _, h := range majority[:2] {
		waitFile(f, h, "value two\nweb web-1\n")
	}
	disconnected(f, minority...)
	kept.wantOnly(t, "value one"+everybody)
	f.Heal()
	for _, h := range f.Hosts {
		waitFile(f, h, "value two"+everybody)
	}
	healthy(t, f)

	t.Log("no server hears another")
	kept = watchFiles(f.Hosts, "file")
	for i, s := range f.Servers {
		f.Partition([]*fleettest.Machine{s.Machine}, fleettest.Machines(f.Servers[i+1:]))
	}
	disconnected(f, f.Hosts...)
	kept.wantOnly(t, "value two"+everybody)
	f.Heal()
	value(f, "three")
	for _, h := range f.Hosts {
		waitFile(f, h, "value three"+everybody)
	}
	healthy(t, f)
}

// value sets what all files show, as soon as Consul takes it. A write that had
// no answer may be carried out any time later: compare-and-swap lets it do no
// harm then.
func value(f *fleettest.Fleet, v string) {
	const key = "/v1/kv/jorc/default/test/value"
	f.Eventually("Consul to take a value", func(ctx context.Context) error {
		var was []struct {
			Value       []byte
			ModifyIndex uint64
		}
		if err := f.API(ctx, http.MethodGet, key+"?consistent", nil, &was); err != nil {
			return err
		}
		if string(was[0].Value) == v {
			return nil
		}
		if err := f.API(ctx, http.MethodPut, fmt.Sprintf("%s?cas=%d", key, was[0].ModifyIndex), fleettest.Raw(v), nil); err != nil {
			return err
		}
		return errors.New("not known to be written yet")
	})
}

// disconnected waits until the agent of one of the hosts says that what its
// file shows may not be up to date.
func disconnected(f *fleettest.Fleet, hosts ...*fleettest.Host) {
	f.Eventually("a host to notice that Consul is away", func(ctx context.Context) error {
		for _, h := range hosts {
			s, err := h.Status(ctx)
			if err != nil {
				return err
			}
			for _, file := range s.Templates {
				if file.Name == "file" && len(file.Stale) > 0 {
					return nil
				}
			}
		}
		return errors.New("none has")
	})
}

// TestConsulLeaderLost: files follow while Consul's leader is killed or frozen
// again and again, and hold nothing that never was.
func TestConsulLeaderLost(t *testing.T) {
	t.Parallel()
	f := usual(t, "", "")
	healthy(t, f)
	everybody := "\nweb web-1 web-2 web-3\n"
	for _, h := range f.Hosts {
		waitFile(f, h, "value first"+everybody)
	}
	seen := watchFiles(f.Hosts, "file")
	allowed := []string{"value first" + everybody}
	n := 0
	change := func() {
		n++
		v := fmt.Sprintf("v%d", n)
		value(f, v)
		allowed = append(allowed, "value "+v+everybody)
	}
	for _, way := range []struct{ lose, back func(*fleettest.Server) }{
		{(*fleettest.Server).Kill, (*fleettest.Server).Start},
		{(*fleettest.Server).Freeze, (*fleettest.Server).Thaw},
		{(*fleettest.Server).Kill, (*fleettest.Server).Start},
	} {
		old := f.Leader()
		change()
		way.lose(old)
		change()
		for _, h := range f.Hosts {
			waitFile(f, h, fmt.Sprintf("value v%d%s", n, everybody))
		}
		way.back(old)
		change()
		for _, h := range f.Hosts {
			waitFile(f, h, fmt.Sprintf("value v%d%s", n, everybody))
		}
	}
	seen.wantOnly(t, allowed...)
	healthy(t, f)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// The floor of a rollout is one without jorc: as many clients in the same processes and behind the
// same Consul agents, which accept an offer, begin maintenance mode, run two programs that do nothing, end
// maintenance mode and report; and one program that reads the reports of the ones that are at work, and offers.
// Its writes have the conditions and about the sizes of jorc's. It neither watches checks nor decides, and
// keeps nothing on a disk, so that jorc cannot need less.
const (
	floorPrefix  = "floor/"
	floorLock    = floorPrefix + "lock"
	floorLedger  = floorPrefix + "ledger"
	floorControl = floorPrefix + "control"
	floorReports = floorPrefix + "nodes/"
	floorGrants  = floorPrefix + "host/"

	floorReportBytes = 1100
	floorGrantBytes  = 300
	floorOffers      = 40 // in a transaction
)

// floorOp is one operation of a transaction.
type floorOp struct {
	Verb    string
	Key     string
	Value   []byte `json:",omitempty"`
	Index   uint64 `json:",omitempty"`
	Session string `json:",omitempty"`
}

// floorPair is a key as Consul returns it.
type floorPair struct {
	Key         string
	Value       []byte
	ModifyIndex uint64
}

// floorTxn carries out operations and returns what is at the keys that they read or wrote.
func floorTxn(ctx context.Context, a *api, ops ...floorOp) (map[string]floorPair, error) {
	all := make([]map[string]floorOp, len(ops))
	for i, op := range ops {
		all[i] = map[string]floorOp{"KV": op}
	}
	body, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	var answer struct{ Results []struct{ KV floorPair } }
	if _, err := a.do(ctx, "PUT", "/v1/txn", body, &answer); err != nil {
		return nil, err
	}
	found := make(map[string]floorPair, len(answer.Results))
	for _, r := range answer.Results {
		found[r.KV.Key] = r.KV
	}
	return found, nil
}

// floorValue is a value of a length that says what.
func floorValue(what string, length int) []byte {
	return []byte(what + strings.Repeat(" ", max(0, length-len(what))))
}

// floorBlock waits until what is below a path has another index.
func floorBlock(ctx context.Context, a *api, path string, index uint64, out any) (uint64, error) {
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	head, err := a.do(ctx, "GET", fmt.Sprintf("/v1/kv/%s%swait=60s&index=%d", path, separator, index), nil, out)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(head.Get("X-Consul-Index"), 10, 64)
}

// HostFloor says which hosts of the floor a host process runs.
type HostFloor struct {
	Task         time.Duration
	First, Count int
	Consul       string
	Session      string // of the lock
	Control      uint64 // index
}

// Floor runs them until each has done its part.
func (h *Host) Floor(s HostFloor, out *Outages) error {
	t := newMaintenances(h.ctx, s.Consul)
	g, ctx := errgroup.WithContext(h.ctx)
	for i := range s.Count {
		g.Go(func() error { return s.host(ctx, nodeName(s.First+i), t) })
	}
	err := g.Wait()
	o, failed := t.take()
	*out = o
	return errors.Join(err, failed)
}

// host does a host's part.
func (s HostFloor) host(ctx context.Context, node string, t *maintenances) error {
	a := newAPI("http://" + s.Consul)
	defer a.client.CloseIdleConnections()
	var grants []floorPair
	for index := uint64(1); len(grants) == 0 || !strings.HasPrefix(string(grants[0].Value), "offered"); {
		var err error
		if index, err = floorBlock(ctx, a, floorGrants+node, index, &grants); err != nil {
			return err
		}
	}
	report := floorReports + node
	read, err := floorTxn(ctx, a, floorOp{Verb: "get", Key: report})
	if err != nil {
		return err
	}
	accepted, err := floorTxn(ctx, a,
		floorOp{Verb: "check-session", Key: floorLock, Session: s.Session},
		floorOp{Verb: "check-index", Key: grants[0].Key, Index: grants[0].ModifyIndex},
		floorOp{Verb: "check-index", Key: floorControl, Index: s.Control},
		floorOp{Verb: "cas", Key: report, Index: read[report].ModifyIndex, Value: floorValue("accepted", floorReportBytes)},
		floorOp{Verb: "set", Key: floorPrefix + "status/running/" + node},
	)
	if err != nil {
		return err
	}
	m := maintenance{t, node}
	if err := m.Begin(ctx, "floor"); err != nil {
		return err
	}
	for _, argv := range [][]string{floorTask(s.Task), floorTask(0)} {
		if err := exec.CommandContext(ctx, argv[0], argv[1:]...).Run(); err != nil {
			return err
		}
	}
	if err := m.Lift(ctx); err != nil {
		return err
	}
	_, err = floorTxn(ctx, a,
		floorOp{Verb: "cas", Key: report, Index: accepted[report].ModifyIndex, Value: floorValue("done", floorReportBytes)},
		floorOp{Verb: "set", Key: floorPrefix + "running_version/" + node},
		floorOp{Verb: "delete", Key: floorPrefix + "status/running/" + node},
		floorOp{Verb: "set", Key: floorPrefix + "status/success/" + node},
	)
	return err
}

// floorTask is the program of a task that takes d.
func floorTask(d time.Duration) []string {
	if d == 0 {
		return []string{"/bin/true"}
	}
	return []string{"/bin/sleep", strconv.FormatFloat(d.Seconds(), 'f', -1, 64)}
}

// floorRun offers.
type floorRun struct {
	a       *api
	session string
	ledger  uint64            // index
	grants  map[string]uint64 // indexes
	waiting []string
	open    []string
}

// measureFloor measures the floor of a rollout by hosts whose agents have not started.
func (b *bench) measureFloor(ctx context.Context, f *simulated) (next samples, err error) {
	a := newAPI("http://" + f.consul.http)
	r := &floorRun{a: a, grants: map[string]uint64{}}
	control, err := r.prepare(ctx, f.size)
	if err != nil {
		return nil, err
	}
	limit := parallel.Of(f.size)
	var outages Outages
	var mu sync.Mutex
	g, both := errgroup.WithContext(ctx)
	for _, h := range f.hosts {
		g.Go(func() error {
			var o Outages
			err := h.call(both, "Floor", HostFloor{Task: f.task, First: h.first, Count: h.count, Consul: h.consul.http, Session: r.session, Control: control}, &o)
			mu.Lock()
			defer mu.Unlock()
			outages.Begins, outages.Lifts = append(outages.Begins, o.Begins...), append(outages.Lifts, o.Lifts...)
			return err
		})
	}
	g.Go(func() error { return r.run(both, limit) })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	next = outages.gaps(limit)
	fmt.Fprintf(b.log, "         floor: a place free until the next node begins %.0f ms, without jorc\n", next.median())
	_, err = a.do(ctx, "DELETE", "/v1/kv/"+floorPrefix+"?recurse", nil, nil)
	return next, err
}

// prepare writes what there is before the first offer, and returns the index of the control.
func (r *floorRun) prepare(ctx context.Context, size int) (control uint64, err error) {
	var session struct{ ID string }
	if _, err := r.a.do(ctx, "PUT", "/v1/session/create", []byte(`{"TTL":"600s"}`), &session); err != nil {
		return 0, err
	}
	r.session = session.ID
	if _, err := r.a.do(ctx, "PUT", "/v1/kv/"+floorLock+"?acquire="+url.QueryEscape(r.session), nil, nil); err != nil {
		return 0, err
	}
	first, err := floorTxn(ctx, r.a, floorOp{Verb: "set", Key: floorControl, Value: []byte("{}")}, floorOp{Verb: "set", Key: floorLedger, Value: []byte("0")})
	if err != nil {
		return 0, err
	}
	r.ledger = first[floorLedger].ModifyIndex
	for i := range size {
		r.waiting = append(r.waiting, nodeName(i))
	}
	for nodes := range slices.Chunk(r.waiting, txnOps/2) {
		var ops []floorOp
		for _, node := range nodes {
			ops = append(ops,
				floorOp{Verb: "set", Key: floorReports + node, Value: floorValue("idle", floorReportBytes)},
				floorOp{Verb: "set", Key: floorGrants + node, Value: floorValue("none", floorGrantBytes)})
		}
		written, err := floorTxn(ctx, r.a, ops...)
		if err != nil {
			return 0, err
		}
		for _, node := range nodes {
			r.grants[node] = written[floorGrants+node].ModifyIndex
		}
	}
	return first[floorControl].ModifyIndex, nil
}

// run offers until all have reported.
func (r *floorRun) run(ctx context.Context, limit int) error {
	for index := uint64(1); ; {
		if err := r.offer(ctx, limit-len(r.open)); err != nil {
			return err
		}
		if len(r.open) == 0 {
			return nil
		}
		var err error
		if index, err = floorBlock(ctx, r.a, floorReports+"?keys&separator=/", index, nil); err != nil {
			return err
		}
		if err := r.collect(ctx); err != nil {
			return err
		}
	}
}

// offer offers places.
func (r *floorRun) offer(ctx context.Context, places int) error {
	for places > 0 && len(r.waiting) > 0 {
		nodes := r.waiting[:min(places, floorOffers, len(r.waiting))]
		ops := []floorOp{
			{Verb: "check-session", Key: floorLock, Session: r.session},
			{Verb: "cas", Key: floorLedger, Index: r.ledger, Value: []byte(strconv.Itoa(len(r.waiting)))},
		}
		for _, node := range nodes {
			ops = append(ops, floorOp{Verb: "cas", Key: floorGrants + node, Index: r.grants[node], Value: floorValue("offered", floorGrantBytes)})
		}
		written, err := floorTxn(ctx, r.a, ops...)
		if err != nil {
			return err
		}
		r.ledger = written[floorLedger].ModifyIndex
		r.open, r.waiting, places = append(r.open, nodes...), r.waiting[len(nodes):], places-len(nodes)
	}
	return nil
}

// collect reads the reports of the ones that are at work.
func (r *floorRun) collect(ctx context.Context) error {
	var open []string
	for nodes := range slices.Chunk(r.open, txnOps) {
		ops := make([]floorOp, len(nodes))
		for i, node := range nodes {
			ops[i] = floorOp{Verb: "get", Key: floorReports + node}
		}
		read, err := floorTxn(ctx, r.a, ops...)
		if err != nil {
			return err
		}
		for _, node := range nodes {
			if !strings.HasPrefix(string(read[floorReports+node].Value), "done") {
				open = append(open, node)
			}
		}
	}
	r.open = open
	return nil
}

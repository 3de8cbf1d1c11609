package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/durable"
)

// nodeMaintenance is the maintenance mode of this node in Consul.
type nodeMaintenance struct {
	client *consul.Client
}

// Begin sets the node's maintenance mode. Maintenance that is already set, by jorc
// or by an operator, stays unchanged.
func (m nodeMaintenance) Begin(ctx context.Context, reason string) error {
	_, there, err := m.notes(ctx)
	if err != nil || there {
		return err
	}
	return m.client.SetNodeMaintenance(ctx, true, reason)
}

// Lift ends maintenance that jorc set.
func (m nodeMaintenance) Lift(ctx context.Context) error {
	notes, there, err := m.notes(ctx)
	if err != nil || !there || !consul.StartedByJorc(notes) {
		return err
	}
	return m.client.SetNodeMaintenance(ctx, false, "")
}

func (m nodeMaintenance) notes(ctx context.Context) (notes string, there bool, err error) {
	have, err := m.client.AgentChecks(ctx, fmt.Sprintf("CheckID == %q", consul.NodeMaintenance))
	if c := have[consul.NodeMaintenance]; c != nil && err == nil {
		return c.Notes, true, nil
	}
	return "", false, err
}

// maintenance is the maintenance mode of this node, which a version and jobs of runs share:
// it is on while one of them needs it. Which need it is on the disk before it begins and until it has
// ended, so that an agent that starts does not end it for a job that continues.
type maintenance struct {
	node converge.Maintenance
	doc  durable.Doc[ownersRecord]
	log  hclog.Logger

	mu     sync.Mutex
	owners []string
	read   bool
}

// ownerVersion is the owner for a version; others are jobs.
const ownerVersion = "version"

// ownerLease is the owner for the lease of this host.
const ownerLease = "lease"

// ownersRecord is who needs the maintenance, as it is on the disk.
type ownersRecord struct {
	Owners []string `json:"owners"`
}

const ownersFormat = 1

func newMaintenance(node converge.Maintenance, stateDir string, log hclog.Logger) *maintenance {
	return &maintenance{node: node, doc: durable.NewDoc[ownersRecord](filepath.Join(stateDir, "maintenance.json"), ownersFormat), log: log}
}

// load reads the owners, once.
func (m *maintenance) load() {
	if m.read {
		return
	}
	m.read = true
	r, _, err := m.doc.Load()
	if err != nil {
		m.log.Warn("cannot read what this host is in maintenance for: the next that ends ends the maintenance", "error", err)
	}
	m.owners = r.Owners
}

// keep replaces the owners.
func (m *maintenance) keep(owners []string) error {
	if err := m.doc.Save(ownersRecord{owners}); err != nil {
		return err
	}
	m.owners = owners
	return nil
}

// begin puts the node into maintenance for an owner.
func (m *maintenance) begin(ctx context.Context, owner, reason string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load()
	if !slices.Contains(m.owners, owner) {
		if err := m.keep(append(slices.Clone(m.owners), owner)); err != nil {
			return err
		}
	}
	return m.node.Begin(ctx, reason)
}

// lift ends the maintenance for an owner, and the node's if no other needs it.
func (m *maintenance) lift(ctx context.Context, owner string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load()
	others := slices.DeleteFunc(slices.Clone(m.owners), func(o string) bool { return o == owner })
	if len(others) == 0 {
		if err := m.node.Lift(ctx); err != nil {
			return err
		}
	}
	if len(others) == len(m.owners) {
		return nil
	}
	return m.keep(others)
}

// ownedMaintenance is the maintenance for one owner: a version, or the lease of this host.
type ownedMaintenance struct {
	m     *maintenance
	owner string
}

// Begin implements converge.Maintenance and lease.Maintenance.
func (o ownedMaintenance) Begin(ctx context.Context, reason string) error {
	return o.m.begin(ctx, o.owner, reason)
}

// Lift implements converge.Maintenance and lease.Maintenance.
func (o ownedMaintenance) Lift(ctx context.Context) error { return o.m.lift(ctx, o.owner) }

// jobMaintenance is the maintenance for jobs.
type jobMaintenance struct{ m *maintenance }

// Begin implements runs.Maintenance.
func (j jobMaintenance) Begin(ctx context.Context, job, reason string) error {
	return j.m.begin(ctx, job, reason)
}

// Lift implements runs.Maintenance.
func (j jobMaintenance) Lift(ctx context.Context, job string) error { return j.m.lift(ctx, job) }

// Jobs implements runs.Maintenance.
func (j jobMaintenance) Jobs() []string {
	j.m.mu.Lock()
	defer j.m.mu.Unlock()
	j.m.load()
	return slices.DeleteFunc(slices.Clone(j.m.owners), func(o string) bool { return o == ownerVersion || o == ownerLease })
}

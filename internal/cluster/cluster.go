// Package cluster is the model of a set of machines that share one profile: its documents and keys, members with
// their roles, filters over them, what hosts report, liveness, who is to lead, and what holds a cluster still. State
// is all of it at one moment. It does no I/O: package fleet reads, watches and writes what stands here. Begin
// reading with State.
package cluster

import (
	"errors"
)

// Sentinels of this package.
var (
	// ErrNoCluster: the cluster has no profile.
	ErrNoCluster = errors.New("no such cluster")
	// ErrNoMember: the node is not a member of the cluster.
	ErrNoMember = errors.New("not a member")
	// ErrInvalid: what was asked for cannot be done with any cluster.
	ErrInvalid = errors.New("invalid")
	// ErrNoACLs: Consul runs without ACLs, so there are no tokens.
	ErrNoACLs = errors.New("Consul's ACLs are switched off")
	// ErrProvisioned: a provisioned node stays so until it is decommissioned.
	ErrProvisioned = errors.New("provisioned already")
	// ErrAlive: the operation is for hosts that no longer exist.
	ErrAlive = errors.New("the host is alive")
)

// RolesOf returns the roles of a node that says r of itself, with the ones that
// are derived behind them.
func (l Leaders) RolesOf(node string, r Record) []string { return l.rolesOf(node, r.Roles) }

// DefaultName is the name of the cluster of hosts that no configuration assigns
// to another one.
const DefaultName = "default"

var (
	// ErrNoHost: the host is neither in the catalog nor a member, and has not
	// reported anything.
	ErrNoHost = errors.New("no such host")
	// ErrNoRole: no member has the role, and the profile has no params for it.
	ErrNoRole = errors.New("no such role")
)

// Exists reports whether the host is a member, in the catalog, or has reported
// something.
func (h *Host) Exists() bool {
	return h != nil && (h.Member || h.Reported || h.Datacenter != "")
}

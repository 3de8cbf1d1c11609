package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
)

// learnNode asks Consul for the node's name, if the configuration has none.
func (a *Agent) learnNode(ctx context.Context) error {
	_ = concurrency.Retry(ctx, concurrency.NewBackoff(time.Second, 30*time.Second), func(ctx context.Context) error {
		_, err := a.nodeName(ctx)
		return err
	}, nil) // ends with ctx
	return nil
}

// nodeName returns this host's name in Consul.
func (a *Agent) nodeName(ctx context.Context) (string, error) {
	a.mu.Lock()
	name := a.node
	a.mu.Unlock()
	if name != "" {
		return name, nil
	}
	self, err := a.client.AgentSelf(ctx)
	if err != nil {
		return "", err
	}
	return a.setNode(self.Config.NodeName), nil
}

// setNode sets the node's name unless it is known already, and returns the known
// one.
func (a *Agent) setNode(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.node == "" {
		a.node = name
		close(a.nodeKnown)
	}
	return a.node
}

// awaitNode returns the node's name once it is known, or ctx's error.
func (a *Agent) awaitNode(ctx context.Context) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-a.nodeKnown:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node, nil
}

// nodeState names the entries of the state directory that belong to a node. The
// journal and the records of stages belong to the files on this disk, the hold file to the operator, and a leadership that
// has not ended to what on_lead did here: they stay.
var nodeState = []string{
	"jobs", "manager", "gates", "clusters", "triggers", "services",
	"converge.json", "converge.json.bad", "drift.json", "snapshot.gob",
	"grant.json", "lease.json", "maintenance.json",
}

// ownStateTimeout bounds how long the start waits for the node's name from Consul. If
// Consul answers later this node owns the state from then on, before any of it is used except
// stored services, the templates' last data, and the lease that 'jorc maintenance show' shows.
const ownStateTimeout = 2 * time.Second

// ownStateEarly makes this node the owner of the state directory if the node's name is known, or Consul
// answers within ownStateTimeout.
func (a *Agent) ownStateEarly(ctx context.Context) error {
	a.removeTemp()
	ctx, cancel := context.WithTimeout(ctx, ownStateTimeout)
	defer cancel()
	node, err := a.nodeName(ctx)
	if err != nil {
		return nil // ownState tries again
	}
	return a.ownStateAs(node)
}

// removeTemp removes the unfinished files of killed processes.
func (a *Agent) removeTemp() {
	dir := a.conf.StateDir
	for _, err := range []error{
		durable.RemoveTemp(dir), durable.RemoveTemp(filepath.Join(dir, "services")),
		durable.RemoveTemp(filepath.Join(dir, "triggers")), durable.RemoveTempOf(a.conf.VersionFile),
	} {
		if err != nil {
			a.o.Log.Warn("an unfinished file stays behind", "error", err)
		}
	}
}

// ownState makes this node the owner of the state directory once its name is known. It returns nil
// when ctx has ended.
func (a *Agent) ownState(ctx context.Context) error {
	if err := a.learnNode(ctx); err != nil {
		return err
	}
	node, err := a.awaitNode(ctx)
	if err != nil {
		return nil
	}
	if err := a.ownStateAs(node); err != nil || !a.inherited {
		return err
	}
	// What the maintenance of the other node was for is aside: if Consul's data came with the disk, nothing else ends it.
	_ = concurrency.Retry(ctx, concurrency.NewBackoff(time.Second, time.Minute), func(ctx context.Context) error { return a.maintenance.lift(ctx, "") },
		func(err error, pause time.Duration) {
			a.o.Log.Warn("cannot end the maintenance of another node, whose state is put aside; will retry", "error", err, "again_in", pause)
		}) // ends with ctx
	return nil
}

// ownStateAs makes node the owner of the state directory and moves the state of
// another node aside.
func (a *Agent) ownStateAs(node string) error {
	select {
	case <-a.stateOwned:
		return nil
	default:
	}
	owner, err := readOwner(a.conf.StateDir)
	if err == nil && owner != node {
		if owner != "" {
			var aside string
			if aside, err = putAside(a.conf.StateDir, a.conf.VersionFile, owner, time.Now()); err == nil {
				a.inherited = true
				a.o.Log.Warn("the state directory belongs to another node: its jobs and its version are put aside, and this node begins as new",
					"node", node, "owner", owner, "aside", aside)
			}
		}
		if err == nil {
			err = durable.WriteFile(filepath.Join(a.conf.StateDir, config.NodeFile), []byte(node+"\n"), 0o644)
		}
	}
	if err != nil {
		return fmt.Errorf("state directory of node %q: %w", node, err)
	}
	close(a.stateOwned)
	return nil
}

// awaitOwnState returns the node's name once the state directory is its own, or
// ctx's error.
func (a *Agent) awaitOwnState(ctx context.Context) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-a.stateOwned:
		return a.awaitNode(ctx)
	}
}

// readOwner returns the node that owns the state; empty if none is recorded.
func readOwner(stateDir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(stateDir, config.NodeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// putAside moves the state of a node and the version file into a new directory
// inside the state directory, and returns that directory. The next start continues
// an interrupted move, because the owner's record is replaced last.
func putAside(stateDir, versionFile, owner string, now time.Time) (aside string, err error) {
	name := "state." + strings.ReplaceAll(owner, "/", "_") + "." + now.UTC().Format("20060102T150405.000000Z")
	aside = filepath.Join(stateDir, name)
	if err := durable.MkdirAll(aside, 0o700); err != nil {
		return "", err
	}
	for _, entry := range nodeState {
		if err := moveInto(aside, filepath.Join(stateDir, entry)); err != nil {
			return "", err
		}
	}
	if filepath.Dir(versionFile) == filepath.Clean(stateDir) {
		err = moveInto(aside, versionFile)
	} else {
		err = renameBeside(versionFile, filepath.Base(versionFile)+"."+name) // may be on another file system
	}
	if err == nil {
		err = errors.Join(durable.SyncDir(aside), durable.SyncDir(stateDir))
	}
	return aside, err
}

// renameBeside renames a file in its directory. A missing file is not an error.
func renameBeside(path, name string) error {
	d, err := durable.OpenDir(filepath.Dir(path))
	if err == nil {
		defer d.Close()
		if err = d.Rename(filepath.Base(path), name); err == nil {
			return d.Sync()
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// moveInto moves a file into a directory. A missing file is not an error.
func moveInto(dir, path string) error {
	err := os.Rename(path, filepath.Join(dir, filepath.Base(path)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

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

// nodeName is this host's name in Consul.
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

// setNode makes name the node's unless it has one, and returns which it has.
func (a *Agent) setNode(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.node == "" {
		a.node = name
		close(a.named)
	}
	return a.node
}

// awaitNode returns the node's name once it is known, or ctx's error.
func (a *Agent) awaitNode(ctx context.Context) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-a.named:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node, nil
}

// nodeState are the names in the state directory of what belongs to a node. The
// journal belongs to the files on this disk, and the hold file to the operator:
// both stay.
var nodeState = []string{
	"jobs", "manager", "clusters", "triggers", "services",
	"converge.json", "converge.json.bad", "drift.json", "snapshot.gob",
}

// claimPatience bounds how long the start waits for Consul to name the node. A
// node that is named later claims its state then, before anything of it is used
// but stored services and the templates' last data.
const claimPatience = 2 * time.Second

// claimEarly claims the state directory if the node's name is known, or Consul
// tells it at once.
func (a *Agent) claimEarly(ctx context.Context) error {
	a.removeTemp()
	ctx, cancel := context.WithTimeout(ctx, claimPatience)
	defer cancel()
	node, err := a.nodeName(ctx)
	if err != nil {
		return nil // claim tries again
	}
	return a.claimFor(node)
}

// removeTemp removes what killed processes left half written.
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

// claim claims the state directory once the node's name is known. It returns nil
// when ctx has ended.
func (a *Agent) claim(ctx context.Context) error {
	if err := a.learnNode(ctx); err != nil {
		return err
	}
	node, err := a.awaitNode(ctx)
	if err != nil {
		return nil
	}
	return a.claimFor(node)
}

// claimFor makes the state that of node: what belongs to another is put aside.
func (a *Agent) claimFor(node string) error {
	select {
	case <-a.claimed:
		return nil
	default:
	}
	owner, err := readOwner(a.conf.StateDir)
	if err == nil && owner != node {
		if owner != "" {
			var aside string
			if aside, err = putAside(a.conf.StateDir, a.conf.VersionFile, owner, time.Now()); err == nil {
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
	close(a.claimed)
	return nil
}

// awaitClaim returns the node's name once the state directory is its own, or
// ctx's error.
func (a *Agent) awaitClaim(ctx context.Context) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-a.claimed:
		return a.awaitNode(ctx)
	}
}

// readOwner returns the node that the state belongs to; empty before the first
// start of a jorc that records it.
func readOwner(stateDir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(stateDir, config.NodeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// putAside moves the state of a node and the version file into a directory of
// the state directory, which it returns. What a crash interrupts is continued at
// the next start: the record of the owner is replaced after everything else.
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
		err = renameBeside(versionFile, filepath.Base(versionFile)+"."+name) // it may be on another file system
	}
	if err == nil {
		err = errors.Join(durable.SyncDir(aside), durable.SyncDir(stateDir))
	}
	return aside, err
}

// renameBeside gives a file that need not be there another name.
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

// moveInto moves what need not be there into a directory.
func moveInto(dir, path string) error {
	err := os.Rename(path, filepath.Join(dir, filepath.Base(path)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

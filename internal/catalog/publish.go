package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/durable"
)

// Errors of Publish and Withdraw for a service that they must not change.
var (
	// ErrForeign: another owner has registered the id.
	ErrForeign = errors.New("registered by another owner")
	// ErrConfigured: the service belongs to the agent's configuration.
	ErrConfigured = errors.New("part of the agent's configuration")
)

// Published is the result of Publish.
type Published struct {
	ID string
	// Daemon: a jorc agent runs on this host and maintains the registration.
	Daemon bool
	// Scripts is the number of its checks that only the daemon can run; without
	// the daemon they stay critical.
	Scripts int
}

// Publish registers one service with the local agent and stores its definition
// below stateDir, from where the daemon loads it. It is safe to repeat. Errors
// are ErrForeign, ErrConfigured, those of the client, or the file system's; a
// service that could not be registered is not stored.
func Publish(ctx context.Context, client *consul.Client, stateDir string, s config.Service) (Published, error) {
	if s.ID == "" {
		s.ID = s.Name
	}
	owner := Owner(stateDir)
	r := newRegistration(s, owner, leastTTL)
	p := Published{ID: s.ID}
	for _, c := range r.checks {
		if c.runByJorc() {
			p.Scripts++
		}
	}
	have, err := readAgent(ctx, client)
	if err != nil {
		return p, err
	}
	p.Daemon = daemon(have, owner, stateDir)
	a := plan([]*registration{r}, have, owner)[0]
	wasStored, err := isStored(stateDir, s.ID)
	switch {
	case err != nil:
		return p, err
	case a.verb == doRefuse:
		return p, fmt.Errorf("service %q: %w: choose another id, or deregister that one first", s.ID, ErrForeign)
	case have.services[s.ID] != nil && !wasStored && p.Daemon:
		return p, fmt.Errorf("service %q: %w: change it there", s.ID, ErrConfigured)
	}
	if err := store(stateDir, s); err != nil {
		return p, err
	}
	if a.verb == doNothing {
		return p, nil
	}
	if err := put(ctx, client, a, func(string) string { return "" }); err != nil {
		if !wasStored && !errors.Is(err, consul.ErrOutcomeUnknown) {
			_, undo := unstore(stateDir, s.ID)
			err = errors.Join(err, undo)
		}
		return p, explain(err, a)
	}
	return p, nil
}

// Withdraw deregisters one service of any owner from the local agent, and
// removes its stored definition. Errors are consul.ErrNotFound if the service
// does not exist, ErrConfigured if the daemon would register it again, those of
// the client, or the file system's.
func Withdraw(ctx context.Context, client *consul.Client, stateDir, id string) error {
	have, err := readAgent(ctx, client)
	if err != nil {
		return err
	}
	owner := Owner(stateDir)
	stored, err := isStored(stateDir, id)
	if err != nil {
		return err
	}
	s, there := have.services[id]
	if there && !stored && s.Meta[MetaOwner] == owner && daemon(have, owner, stateDir) {
		return fmt.Errorf("service %q: %w: remove it there", id, ErrConfigured)
	}
	if _, err := unstore(stateDir, id); err != nil {
		return err
	}
	if !there && !stored {
		return fmt.Errorf("service %q: %w at this agent", id, consul.ErrNotFound)
	}
	// The daemon may have deregistered it already.
	if err := client.DeregisterService(ctx, id); err != nil && !errors.Is(err, consul.ErrNotFound) {
		return explain(err, action{id: id})
	}
	return nil
}

// LockFile is the file in the state directory that a running jorc agent locks.
const LockFile = "agent.lock"

// daemon reports whether owner's jorc agent runs: its own service is passing, and
// it holds the lock of its state directory. After a stop the service keeps passing
// until its TTL ends, so the lock decides if its file can be read.
func daemon(have atAgent, owner, stateDir string) bool {
	lock := filepath.Join(stateDir, LockFile)
	if _, err := os.Stat(lock); err == nil && stateDir != "" {
		if holder, err := durable.Holder(lock); err == nil && holder == "" {
			return false
		}
	}
	for _, c := range have.checks {
		s, ok := have.services[c.ServiceID]
		if ok && s.Service == PresenceName && s.Meta[MetaOwner] == owner && c.Status == consul.HealthPassing {
			return true
		}
	}
	return false
}

// storedFormat is the format number of stored definitions.
const storedFormat = 1

// storedService is a file that `jorc service register` writes for the daemon.
type storedService struct {
	Service config.Service `json:"service"`
}

// storedDir returns the directory of a state directory's definitions.
func storedDir(stateDir string) string { return filepath.Join(stateDir, "services") }

// storedPath returns a service's file; its id may have any characters.
func storedPath(stateDir, id string) string {
	return filepath.Join(storedDir(stateDir), url.PathEscape(id)+".json")
}

// storedDoc is the definition in a file.
func storedDoc(path string) durable.Doc[storedService] {
	return durable.NewDoc[storedService](path, storedFormat)
}

// store writes s for the daemon. Headers of HTTP checks may contain secrets, so
// only the file's owner may read it.
func store(stateDir string, s config.Service) error {
	if err := storedDoc(storedPath(stateDir, s.ID)).Save(storedService{s}); err != nil {
		return fmt.Errorf("store service %q: %w", s.ID, err)
	}
	return nil
}

// isStored reports whether a service has a stored definition.
func isStored(stateDir, id string) (bool, error) {
	_, err := os.Stat(storedPath(stateDir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find stored service %q: %w", id, err)
	}
	return true, nil
}

// unstore removes a stored definition; found reports whether it existed.
func unstore(stateDir, id string) (found bool, err error) {
	if found, err = isStored(stateDir, id); err != nil || !found {
		return false, err
	}
	if err := storedDoc(storedPath(stateDir, id)).Remove(); err != nil {
		return false, fmt.Errorf("remove stored service %q: %w", id, err)
	}
	return true, nil
}

// readStored reads all stored definitions; the error names the files that it
// could not read.
func readStored(stateDir string) ([]config.Service, error) {
	entries, err := os.ReadDir(storedDir(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read stored services: %w", err)
	}
	var services []config.Service
	var failures []error
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		s, err := readStoredFile(filepath.Join(storedDir(stateDir), e.Name()))
		if err != nil {
			failures = append(failures, err)
			continue
		}
		services = append(services, s)
	}
	return services, errors.Join(failures...)
}

func readStoredFile(path string) (config.Service, error) {
	f, found, err := storedDoc(path).Read()
	if err != nil || !found {
		return config.Service{}, fmt.Errorf("read stored service %s: %w", path, cmp.Or(err, fs.ErrNotExist))
	}
	if f.Service.Name == "" {
		return config.Service{}, fmt.Errorf("stored service %s: no name", path)
	}
	return f.Service, nil
}

// loadStored reads the stored definitions. While one cannot be read, no service
// is deregistered, because it may be that one.
func (r *Registrar) loadStored() {
	var services []config.Service
	var err error
	if r.o.StateDir != "" {
		if services, err = readStored(r.o.StateDir); err != nil {
			r.log.Error("cannot read all stored services; no service is deregistered until then", "error", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored, r.storedOK = services, err == nil
	r.combine()
}

// watchStored loads changes of the stored definitions until ctx ends.
func (r *Registrar) watchStored(ctx context.Context) error {
	if r.o.StateDir == "" {
		return nil
	}
	if err := durable.MkdirAll(storedDir(r.o.StateDir), 0o700); err != nil {
		r.log.Warn("cannot load services that `jorc service register` stores", "error", err)
		return nil
	}
	w, err := fsnotify.NewWatcher()
	if err == nil {
		err = w.Add(storedDir(r.o.StateDir))
	}
	if err != nil {
		r.log.Warn("cannot watch stored services: changes are loaded at the next reload only", "error", err)
		return nil
	}
	defer func() { _ = w.Close() }() // nothing was written through it
	for {
		r.loadStored() // also changes before the watch was set up
		r.wake.Notify()
		select {
		case <-ctx.Done():
			return nil
		case <-w.Events:
		case err := <-w.Errors:
			r.log.Warn("watch of stored services", "error", err)
		}
	}
}

package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
)

// storedFormat is the format number of stored definitions.
const storedFormat = 1

// storedService is a file that `jorc service register` leaves for the daemon.
type storedService struct {
	Format  int            `json:"format"`
	Service config.Service `json:"service"`
}

// storedDir is where the definitions of a state directory are.
func storedDir(stateDir string) string { return filepath.Join(stateDir, "services") }

// storedPath is a service's file, whatever characters its id has.
func storedPath(stateDir, id string) string {
	return filepath.Join(storedDir(stateDir), url.PathEscape(id)+".json")
}

// store keeps s for the daemon. Headers of HTTP checks may hold secrets: the
// file is for its owner alone.
func store(stateDir string, s config.Service) error {
	if err := durable.MkdirAll(storedDir(stateDir), 0o700); err != nil {
		return fmt.Errorf("store service %q: %w", s.ID, err)
	}
	data, err := json.MarshalIndent(storedService{Format: storedFormat, Service: s}, "", "  ")
	if err != nil {
		return fmt.Errorf("store service %q: %w", s.ID, err)
	}
	if err := durable.WriteFile(storedPath(stateDir, s.ID), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("store service %q: %w", s.ID, err)
	}
	return nil
}

// isStored tells whether there is a stored definition of a service.
func isStored(stateDir, id string) (bool, error) {
	_, err := os.Stat(storedPath(stateDir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for service %q: %w", id, err)
	}
	return true, nil
}

// unstore removes a stored definition; found tells whether there was one.
func unstore(stateDir, id string) (found bool, err error) {
	err = os.Remove(storedPath(stateDir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("forget service %q: %w", id, err)
	}
	return true, durable.SyncDir(storedDir(stateDir))
}

// readStored reads all stored definitions that can be read; the error names
// those that cannot.
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
	var f storedService
	data, err := os.ReadFile(path)
	if err != nil {
		return config.Service{}, fmt.Errorf("read stored service: %w", err)
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return config.Service{}, fmt.Errorf("stored service %s: %w", path, err)
	}
	if f.Service.Name == "" {
		return config.Service{}, fmt.Errorf("stored service %s: it has no name", path)
	}
	return f.Service, nil
}

// loadStored makes the stored definitions those that are wanted. As long as
// one cannot be read, nothing is deregistered: it may be that one.
func (r *Registrar) loadStored() {
	var services []config.Service
	var err error
	if r.o.StateDir != "" {
		if services, err = readStored(r.o.StateDir); err != nil {
			r.log.Error("stored services cannot all be read; none is deregistered meanwhile", "error", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored, r.storedOK = services, err == nil
	r.combine()
}

// watchStored takes up changes of the stored definitions until ctx ends.
func (r *Registrar) watchStored(ctx context.Context) error {
	if r.o.StateDir == "" {
		return nil
	}
	if err := durable.MkdirAll(storedDir(r.o.StateDir), 0o700); err != nil {
		r.log.Warn("services that `jorc service register` stores are not taken up", "error", err)
		return nil
	}
	w, err := fsnotify.NewWatcher()
	if err == nil {
		err = w.Add(storedDir(r.o.StateDir))
	}
	if err != nil {
		r.log.Warn("services that `jorc service register` stores are taken up at the next reload only", "error", err)
		return nil
	}
	defer func() { _ = w.Close() }() // nothing was written through it
	for {
		r.loadStored() // also what changed before the watch was there
		r.look()
		select {
		case <-ctx.Done():
			return nil
		case <-w.Events:
		case err := <-w.Errors:
			r.log.Warn("watch of stored services", "error", err)
		}
	}
}

// Package vaulttest stands in for Vault, which takes too long to build for tests. It answers as
// Vault's API does for a token that may read, the key-value store in both versions, and
// credentials with a lease that is renewed.
package vaulttest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is one Vault. Its mounts are secret/ (key-value store, version 1), kv/ (version 2)
// and database/ (credentials).
type Server struct {
	URL string

	t        testing.TB
	mu       sync.Mutex
	token    string
	values   map[string]value // by path, without data/ in version 2
	lease    time.Duration    // of new credentials
	leases   map[string]bool  // that can be renewed
	away     bool
	asked    int // for secrets
	made     int // credentials
	renewals int
}

type value struct {
	data  map[string]any
	lease time.Duration
}

// Start returns a server that knows one token. It listens on address; its port may be 0.
func Start(t testing.TB, address, token string) *Server {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("vaulttest: %v", err)
	}
	v := &Server{t: t, token: token, values: map[string]value{}, leases: map[string]bool{}}
	s := httptest.NewUnstartedServer(v)
	if err := s.Listener.Close(); err != nil {
		t.Fatalf("vaulttest: %v", err)
	}
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	v.URL = s.URL
	return v
}

// Put sets the secret at path, secret/NAME or kv/NAME. In version 1 it has a lease unless
// that is 0.
func (v *Server) Put(path string, lease time.Duration, data map[string]any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.values[path] = value{data, lease}
}

// Lend sets the lease of the credentials that are made from now on.
func (v *Server) Lend(lease time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lease = lease
}

// Accept ends the token that may read, and with it all leases, and knows another.
func (v *Server) Accept(token string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.token = token
	clear(v.leases)
}

// Away lets the server refuse all requests, as one that is sealed, or answer again.
func (v *Server) Away(away bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.away = away
}

// Revoke ends all leases: none is renewed.
func (v *Server) Revoke() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.leases)
}

// Asked is how often a secret was read.
func (v *Server) Asked() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.asked
}

// Renewals is how often a lease was renewed.
func (v *Server) Renewals() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.renewals
}

// ServeHTTP answers as Vault does.
func (v *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	answer, status := v.answer(r)
	if answer == nil {
		w.WriteHeader(status)
		problems := []string{}
		if status == http.StatusForbidden {
			problems = append(problems, "permission denied")
		}
		answer = map[string]any{"errors": problems}
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		v.t.Errorf("vaulttest: %v", err)
	}
}

func (v *Server) answer(r *http.Request) (answer map[string]any, status int) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	mount, name, _ := strings.Cut(path, "/")
	switch {
	case v.away:
		return nil, http.StatusServiceUnavailable
	case r.Header.Get("X-Vault-Token") != v.token:
		return nil, http.StatusForbidden
	case path == "sys/leases/renew" && r.Method == http.MethodPut:
		return v.renew(r)
	case strings.HasPrefix(path, "sys/internal/ui/mounts/"):
		mount, _, _ := strings.Cut(strings.TrimPrefix(path, "sys/internal/ui/mounts/"), "/")
		version := map[string]string{"secret": "1", "kv": "2"}[mount]
		if version == "" {
			return map[string]any{"data": map[string]any{"path": mount + "/", "type": mount}}, 0
		}
		return map[string]any{"data": map[string]any{"path": mount + "/", "type": "kv", "options": map[string]any{"version": version}}}, 0
	case r.Method != http.MethodGet:
		return nil, http.StatusNotFound
	case mount == "database" && strings.HasPrefix(name, "creds/"):
		v.asked++
		v.made++
		id := fmt.Sprintf("%s/%d", path, v.made)
		v.leases[id] = true
		return map[string]any{
			"lease_id": id, "lease_duration": int(v.lease.Seconds()), "renewable": true,
			"data": map[string]any{"username": fmt.Sprint("v-app-", v.made), "password": fmt.Sprint("made-", v.made)},
		}, 0
	}
	v.asked++
	found, ok := v.values[mount+"/"+strings.TrimPrefix(name, "data/")]
	switch {
	case !ok || mount == "kv" != strings.HasPrefix(name, "data/"):
		return nil, http.StatusNotFound
	case mount == "kv":
		return map[string]any{"data": map[string]any{"data": found.data, "metadata": map[string]any{"version": 1, "deletion_time": ""}}}, 0
	}
	answer = map[string]any{"data": found.data}
	if found.lease > 0 {
		answer["lease_duration"] = int(found.lease.Seconds())
	}
	return answer, 0
}

func (v *Server) renew(r *http.Request) (answer map[string]any, status int) {
	var asked struct {
		LeaseID string `json:"lease_id"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || !v.leases[asked.LeaseID] {
		return nil, http.StatusBadRequest
	}
	v.renewals++
	return map[string]any{"lease_id": asked.LeaseID, "lease_duration": int(v.lease.Seconds()), "renewable": true}, 0
}

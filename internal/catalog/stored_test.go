package catalog

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

func TestPublishedServicesAreTakenUpByTheDaemon(t *testing.T) {
	t.Parallel()
	c := consultest.Start(t).Client()
	o := fast(t)
	web := config.Service{Name: "web", ID: "web/1", Port: 80, Checks: []config.Check{newScript(t, 0).check()}}

	p, err := Publish(t.Context(), c, o.StateDir, web)
	if want := (Published{ID: "web/1", Scripts: 1}); err != nil || p != want {
		t.Fatalf("without a daemon: %+v, %v; want %+v", p, err, want)
	}
	wantState(t, c, "service:web/1", consul.HealthCritical)

	x := runRegistrar(t, c, o, config.Service{Name: "conf"}).ready()
	wantState(t, c, "service:web/1", consul.HealthPassing)
	wantState(t, c, "service:jorc", consul.HealthPassing)
	if s := x.service("web/1"); !s.Stored || !s.Registered {
		t.Errorf("status: %+v", s)
	}
	db := config.Service{Name: "db", Checks: []config.Check{newScript(t, 1).check()}}
	for range 2 { // it is safe to repeat
		if p, err := Publish(t.Context(), c, o.StateDir, db); err != nil || !p.Daemon {
			t.Fatalf("with a daemon: %+v, %v", p, err)
		}
	}
	wantState(t, c, "service:db", consul.HealthWarning)

	if _, err := Publish(t.Context(), c, o.StateDir, config.Service{Name: "conf"}); !errors.Is(err, ErrConfigured) {
		t.Errorf("publish what is configured: %v, want %v", err, ErrConfigured)
	}
	if err := Withdraw(t.Context(), c, o.StateDir, "conf"); !errors.Is(err, ErrConfigured) {
		t.Errorf("withdraw what is configured: %v, want %v", err, ErrConfigured)
	}
	if err := Withdraw(t.Context(), c, o.StateDir, "none"); !errors.Is(err, consul.ErrNotFound) {
		t.Errorf("withdraw what is not there: %v, want %v", err, consul.ErrNotFound)
	}
	if err := Withdraw(t.Context(), c, o.StateDir, "web/1"); err != nil {
		t.Fatal(err)
	}
	wantServices(t, c, "conf", "db")
	x.Reload(nil)
	wantServices(t, c, "db")
}

func TestPublishLeavesForeignServicesAlone(t *testing.T) {
	t.Parallel()
	c := consultest.Start(t).Client()
	dir := t.TempDir()
	if err := c.RegisterService(t.Context(), &consul.ServiceRegistration{ID: "web", Name: "web"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Publish(t.Context(), c, dir, config.Service{Name: "web"}); !errors.Is(err, ErrForeign) {
		t.Errorf("publish: %v, want %v", err, ErrForeign)
	}
	if stored, err := readStored(dir); len(stored) > 0 || err != nil {
		t.Errorf("stored: %v, %v", stored, err)
	}
	if err := Withdraw(t.Context(), c, dir, "web"); err != nil {
		t.Errorf("withdraw on demand: %v", err)
	}
	wantServices(t, c)
}

func TestDeniedServicesAreNotStored(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	dir := t.TempDir()
	c := s.ClientWithToken(s.NewToken(`service "web" { policy = "read" }`))
	if _, err := Publish(t.Context(), c, dir, config.Service{Name: "web"}); !errors.Is(err, consul.ErrDenied) {
		t.Errorf("publish: %v, want %v", err, consul.ErrDenied)
	}
	if stored, err := readStored(dir); len(stored) > 0 || err != nil {
		t.Errorf("stored: %v, %v", stored, err)
	}
}

func TestNothingIsRemovedWhileAStoredDefinitionIsUnreadable(t *testing.T) {
	t.Parallel()
	c := consultest.Start(t).Client()
	o := fast(t)
	if _, err := Publish(t.Context(), c, o.StateDir, config.Service{Name: "web"}); err != nil {
		t.Fatal(err)
	}
	path := storedPath(o.StateDir, "web")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	x := runRegistrar(t, c, o, config.Service{Name: "other"}).ready()
	x.heartbeats(5)
	wantServices(t, c, "web", "other")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantServices(t, c, "other")
}

func TestStoredDefinitionsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, id := range []string{"web", "../../etc/passwd", ".", "..", "a b\n", "é%2F"} {
		want := config.Service{
			Name: "web", ID: id, Port: 80, Tags: []string{"a"}, Meta: map[string]string{"k": "v"},
			TaggedAddresses: map[string]config.Address{"eth0": {Host: "10.0.0.1", Port: 1}},
			Weights:         &config.Weights{Passing: 1},
			Checks: []config.Check{
				{Shell: "true", Interval: time.Second, Header: map[string][]string{"A": {"b"}}},
			},
		}
		if err := store(dir, want); err != nil {
			t.Fatal(err)
		}
		got, err := readStored(dir)
		if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("id %q: %+v, %v; want %+v", id, got, err, want)
		}
		entries, err := filepath.Glob(filepath.Join(dir, "services", "*"))
		if err != nil || len(entries) > 1 {
			t.Errorf("id %q: files %v, %v", id, entries, err)
		}
		if found, err := unstore(dir, id); !found || err != nil {
			t.Errorf("unstore %q: %v, %v", id, found, err)
		}
	}
}

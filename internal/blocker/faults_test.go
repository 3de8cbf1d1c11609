package blocker_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

func TestConsulNeverAnswers(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.Stop()
	for _, o := range []blocker.Options{{Timeout: 300 * time.Millisecond}, {Tries: 2}} {
		err := h.blocker().Wait(t.Context(), []blocker.Need{need(t, "web", catalog.Functional)}, o, nil)
		if !errors.Is(err, consul.ErrUnreachable) || !errors.Is(err, blocker.ErrTimedOut) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestConsulComesBack(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.Stop()
	functional := start(t, h.blocker(), blocker.Options{}, need(t, "web", catalog.Functional))
	registered := start(t, h.blocker(), blocker.Options{}, need(t, "web", catalog.Addressable))
	noAnswer := func(s []blocker.State) bool { return !s[0].Answered && s[0].Why != "" }
	functional.until(t, "seeing no Consul", noAnswer)
	registered.until(t, "seeing no Consul", noAnswer)
	h.Restart()
	functional.until(t, "seeing Consul", have(0))
	h.serve(1, "")
	if err := functional.end(t); err != nil {
		t.Error(err)
	}
	if err := registered.end(t); err != nil {
		t.Error(err)
	}
}

func TestConsulGoesAway(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	w := start(t, h.blocker(), blocker.Options{Timeout: 5 * time.Second}, need(t, "web", catalog.Functional))
	w.until(t, "seeing Consul", have(0))
	h.Kill()
	err := w.end(t)
	if !errors.Is(err, blocker.ErrTimedOut) || errors.Is(err, consul.ErrUnreachable) {
		t.Errorf("Consul had answered: %v", err)
	}
}

func TestFrozenConsul(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.serve(1, "")
	h.Freeze()
	needs := []blocker.Need{need(t, "web", catalog.Functional)}
	err := h.blocker().Wait(t.Context(), needs, blocker.Options{Timeout: time.Second}, nil)
	if !errors.Is(err, consul.ErrUnreachable) {
		t.Errorf("err = %v", err)
	}
	w := start(t, h.blocker(), blocker.Options{}, needs...)
	w.until(t, "telling that nothing answers", func(s []blocker.State) bool { return !s[0].Answered && s[0].Why != "" })
	h.Thaw()
	if err := w.end(t); err != nil {
		t.Error(err)
	}
}

// DNS decides, with the HTTP API or without.
func TestWithoutHTTP(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.serve(1, "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	closed, err := consul.New(config.Consul{Address: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	for name, b := range map[string]*blocker.Blocker{"none": blockerOf(t, nil, h.DNSAddr), "closed": blockerOf(t, closed, h.DNSAddr)} {
		for _, o := range []blocker.Options{{DNSOnly: true}, {}, {Tries: 1}} {
			if err := b.Wait(t.Context(), []blocker.Need{need(t, "web", catalog.Functional)}, o, nil); err != nil {
				t.Errorf("%s, %+v: %v", name, o, err)
			}
		}
	}
	n := need(t, "web", catalog.Functional)
	n.Passing = true
	err = blockerOf(t, closed, h.DNSAddr).Wait(t.Context(), []blocker.Need{n}, blocker.Options{Tries: 1}, nil)
	if !errors.Is(err, blocker.ErrTimedOut) {
		t.Errorf("nobody knows what passes: %v", err)
	}
}

func TestRights(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.WithACL())
	h.serve(1, "") // DNS has a token that sees it
	read := `node_prefix "" { policy = "read" }`
	tokens := map[string]struct {
		token  string
		denied bool
	}{
		"anonymous":     {"", true},
		"unknown":       {"11111111-2222-3333-4444-555555555555", true},
		"other service": {h.NewToken(read + ` service "db" { policy = "read" }`), true},
		"no nodes":      {h.NewToken(`service "web" { policy = "read" }`), true},
		"service":       {h.NewToken(read + ` service "web" { policy = "read" }`), false},
	}
	for name, tt := range tokens {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := blockerOf(t, h.ClientWithToken(tt.token), h.DNSAddr)
			for _, n := range []blocker.Need{
				need(t, "web", catalog.Functional), need(t, "web", catalog.Addressable), need(t, "web.service.consul.", catalog.Functional),
				need(t, "web@dc1", catalog.Functional),
			} {
				if n.Target.Datacenter != "" && name == "anonymous" {
					continue // rights in another datacenter cannot be checked: the wait times out
				}
				for _, o := range []blocker.Options{{}, {Tries: 1}} {
					err := b.Wait(t.Context(), []blocker.Need{n}, o, nil)
					if errors.Is(err, consul.ErrDenied) != tt.denied || !tt.denied && err != nil {
						t.Errorf("%v %v: %v, want denied %v", n.Target, n.For, err, tt.denied)
					}
				}
			}
		})
	}
}

func TestDeniedAmongOthers(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.WithACL())
	h.serve(1, "")
	b := blockerOf(t, h.ClientWithToken(h.NewToken(`node_prefix "" { policy = "read" } service "web" { policy = "read" }`)), h.DNSAddr)
	needs := []blocker.Need{need(t, "db", catalog.Functional), need(t, "web", catalog.Functional)}
	if err := b.Wait(t.Context(), needs, blocker.Options{Any: true}, nil); err != nil {
		t.Errorf("any: %v", err)
	}
	if err := b.Wait(t.Context(), needs, blocker.Options{}, nil); !errors.Is(err, consul.ErrDenied) {
		t.Errorf("all: %v", err)
	}
}

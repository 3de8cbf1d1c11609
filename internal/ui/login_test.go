package ui_test

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/ui"
	"github.com/jorc/jorc/internal/ui/uitest"
)

const (
	readAll = `key_prefix "jorc/prod/" { policy = "read" } node_prefix "" { policy = "read" } service_prefix "" { policy = "read" }`
	bearer  = "Bearer "
)

// stranger is a client without cookies that has not opened the address.
func (f *fixture) stranger(address string) *browser {
	f.t.Helper()
	base, err := url.Parse(address)
	f.Must(nil, err)
	return &browser{f.t, base, &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// login posts the form with a token.
func (b *browser) login(token string) (int, string) {
	b.t.Helper()
	status, body, _ := b.do(http.MethodPost, "/login", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, url.Values{"token": {token}}.Encode())
	return status, body
}

// TestLoginsAreBounded: neither tokens without rights nor one token that logs in again and again
// take the places of other viewers.
func TestLoginsAreBounded(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	f := newFixtureOn(t, s, s.Client(), "prod")
	address := f.serve(ui.Options{Consul: s.Config()})
	many := func(token string, want int) {
		t.Helper()
		var logins sync.WaitGroup
		for range 4 {
			logins.Go(func() {
				b := f.stranger(address)
				for range 80 {
					if status, body := b.login(token); status != want {
						t.Errorf("login: %d %s; want %d", status, body, want)
						return
					}
				}
			})
		}
		logins.Wait()
	}
	little := s.NewToken(`key_prefix "jorc/prod/" { policy = "read" } node_prefix "" { policy = "read" }`)
	for _, token := range []string{little, "anonymous"} {
		many(token, http.StatusForbidden)
		status, body := f.stranger(address).login(token)
		if status != http.StatusForbidden || !strings.Contains(body, "service:read") {
			t.Errorf("a token without rights: %d %s; want 403 that names one", status, body)
		}
	}
	ann := f.browse(address)
	if status, body := ann.login(s.NewToken(readAll)); status != http.StatusSeeOther {
		t.Fatalf("a viewer after them: %d %s", status, body)
	}

	// One token that logs in again ends its own sessions, the one that was used least recently
	// first.
	bob, token := f.browse(address), s.NewToken(readAll)
	bob.login(token)
	many(token, http.StatusSeeOther)
	if status, body, _ := ann.get(f.one(), nil); status != http.StatusOK {
		t.Errorf("another viewer meanwhile: %d %s", status, body)
	}
	if status, _, _ := bob.get(f.one(), nil); status != http.StatusUnauthorized {
		t.Errorf("the first session of the token: %d", status)
	}
	if status, _ := bob.login(token); status != http.StatusSeeOther {
		t.Errorf("the next login: %d", status)
	}
	if status, body, _ := f.stranger(address).get(f.one(), map[string]string{"Authorization": bearer + s.NewToken(readAll)}); status != http.StatusOK {
		t.Errorf("a program: %d %s", status, body)
	}
}

// from lets a browser connect from a loopback address.
func (b *browser) from(ip string) *browser {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	b.http.Transport = &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}
	return b
}

// TestSessionsOfAnAddress: one address with many tokens has 64 sessions; one more ends the one
// that was used least recently, and none of another address.
func TestSessionsOfAnAddress(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	f := newFixtureOn(t, s, s.Client(), "prod")
	address := f.serve(ui.Options{Consul: s.Config()})
	login := func(ip string) *browser {
		t.Helper()
		b := f.browse(address).from(ip)
		if status, body := b.login(s.NewToken(readAll)); status != http.StatusSeeOther {
			t.Fatalf("a login from %s: %d %s", ip, status, body)
		}
		return b
	}
	want := func(b *browser, what string, want int) {
		t.Helper()
		if status, body, _ := b.get(f.one(), nil); status != want {
			t.Errorf("%s: %d %s; want %d", what, status, body, want)
		}
	}
	other := login("127.0.0.3")
	const most = 64
	var all []*browser
	for range most {
		all = append(all, login("127.0.0.2"))
	}
	want(all[0], "the first of 64", http.StatusOK) // the second is now the one used least recently
	login("127.0.0.2")
	want(all[0], "the first, used since", http.StatusOK)
	want(all[1], "the one used least recently", http.StatusUnauthorized)
	want(all[2], "the next one", http.StatusOK)
	want(other, "another address", http.StatusOK)
}

// TestHeadOfTheKey: a HEAD request, as previews of links make it, does not use up the key.
func TestHeadOfTheKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	address := f.serve(ui.Options{Key: true})
	if _, _, header := f.stranger(address).do(http.MethodHead, address, nil, ""); header.Get("Set-Cookie") != "" {
		t.Errorf("HEAD: %v", header)
	}
	if status, body, _ := f.browse(address).get(f.one(), nil); status != http.StatusOK {
		t.Errorf("after it: %d %s", status, body)
	}
}

// TestUnknownCluster: an error about a cluster that a viewer may not see, or that does not exist,
// names no cluster that the viewer may not see.
func TestUnknownCluster(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	f := newFixtureOn(t, s, s.Client(), "prod")
	uitest.New(t, s, s.Client(), "production-secret")
	b := f.stranger(f.serve(ui.Options{Consul: s.Config()}))
	token := s.NewToken(readAll + `key_prefix "jorc/production" { policy = "read" } key_prefix "jorc/production-secret" { policy = "deny" }`)
	for path, want := range map[string]int{"production": http.StatusNotFound, "production-secret": http.StatusForbidden, "production-secre": http.StatusNotFound, "x": http.StatusForbidden} {
		status, body, _ := b.get("/v1/fleet/clusters/"+path, map[string]string{"Authorization": bearer + token})
		if status != want || strings.Contains(strings.ReplaceAll(body, "jorc/"+path, ""), "production-secret") && path != "production-secret" {
			t.Errorf("%s: %d %s; want %d", path, status, body, want)
		}
	}
	if _, body, _ := b.get("/v1/fleet/clusters", map[string]string{"Authorization": bearer + token}); strings.Contains(body, "secret") || !strings.Contains(body, `{"name":"prod","members":3}`) {
		t.Errorf("clusters: %s", body)
	}
}

// TestFewRights: 'jorc ui' with a token that lacks a right for the cluster's state answers at once
// and names it.
func TestFewRights(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	newFixtureOn(t, s, s.Client(), "prod")
	for rules, want := range map[string]string{
		`key_prefix "jorc/prod/" { policy = "read" } node_prefix "" { policy = "read" } service_prefix "web" { policy = "read" }`:     "service:read on everything",
		`key_prefix "jorc/prod/" { policy = "read" } service_prefix "" { policy = "read" }`:                                           "node:read on everything",
		`key_prefix "jorc/prod/current" { policy = "read" } node_prefix "" { policy = "read" } service_prefix "" { policy = "read" }`: `key:read on everything that begins with "jorc/prod/host/"`,
		readAll + `service "web-prod" { policy = "deny" }`:                                                                            "service:read on every",
	} {
		conf := s.Config()
		conf.Token = config.Secret(s.NewToken(rules))
		client, err := consul.New(conf)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		part := &fixture{Cluster: uitest.Of(t, s, client, "prod"), t: t, name: "prod"}
		part.Run(ui.FleetOptions{Client: client, Prefix: "jorc", Default: "prod"})
		b := part.browse(part.serve(ui.Options{Key: true}))
		for _, view := range []string{"", "/hosts", "/attention", "/stream"} {
			status, body, _ := b.get(part.one()+view, nil)
			if status != http.StatusForbidden || !strings.Contains(strings.ReplaceAll(body, `\"`, `"`), want) {
				t.Errorf("%s: %s: %d %s; want 403 that names %s", rules, view, status, body, want)
			}
		}
	}
}

// TestRightsAreAskedForTogether: what a viewer may see of many hosts costs Consul a few requests,
// whatever their number, and is right.
func TestRightsAreAskedForTogether(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	f := newFixtureOn(t, s, s.Client(), "prod")
	const hosts = 1500 // n1… are 1111 of them: more than is asked for one by one
	for n := range hosts {
		f.Must(nil, f.Client.KVPut(t.Context(), &consul.KVPair{Key: f.Store().Path(fmt.Sprintf("host/n%d/member", n)), Value: []byte(`{"format":1}`)}))
	}
	f.eventually("the hosts are read", f.fleet(true), func(s *ui.Snapshot) string {
		if n := s.Overview().Counts.Nodes; n != hosts+3 {
			return fmt.Sprint(n)
		}
		return ""
	})
	p := s.Proxy()
	b := f.stranger(f.serve(ui.Options{Consul: p.Config()}))
	token := s.NewToken(readAll + `key_prefix "jorc/prod/host/n1" { policy = "deny" }`)
	get := func() string {
		status, body, _ := b.get(f.one(), map[string]string{"Authorization": bearer + token})
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		return body
	}
	body := get()
	visible := 3
	for n := range hosts {
		if !strings.HasPrefix(fmt.Sprint(n), "1") {
			visible++
		}
	}
	if !strings.Contains(body, fmt.Sprintf(`"nodes":%d,`, visible)) || strings.Contains(strings.ReplaceAll(body, `jorc/prod/host/n1`, ""), "n1") {
		t.Errorf("of %d hosts %d are to be counted: %s", hosts, visible, body)
	}
	if n := p.Asked("/v1/internal/acl/authorize"); n > 20 {
		t.Errorf("Consul was asked for rights %d times", n)
	}
	if n := p.Asked("/v1/kv/"); n > 2 {
		t.Errorf("Consul was asked for keys %d times", n)
	}
	before := p.Asked("/")
	get()
	if n := p.Asked("/") - before; n > 0 {
		t.Errorf("the same again: Consul was asked %d times", n)
	}
}

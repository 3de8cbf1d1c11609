package ui

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
)

// ErrLogin: the request is not that of a viewer who has logged in.
var ErrLogin = errors.New("not logged in")

// Viewer is who sees the fleet, and with which rights.
type Viewer struct {
	// Name is the owner of a certificate or a token; empty: who started the server.
	Name string
	// Sealed: no param is shown.
	Sealed bool
	// LogsOut reports whether the viewer has a session to end.
	LogsOut bool

	fleets  *Fleets
	session *session // nil: a certificate, whose rights are the server's
}

// Clusters returns the clusters that the viewer may see. It returns what
// Fleets.Clusters returns.
func (v *Viewer) Clusters(ctx context.Context) (Clusters, error) {
	all, err := v.fleets.Clusters(ctx)
	if err != nil || v.token() == nil {
		return all, err
	}
	members, err := v.token().members(ctx, v.fleets.o.Prefix)
	if err != nil {
		return Clusters{}, err
	}
	seen := all.Clusters[:0]
	for _, c := range all.Clusters {
		switch err := v.session.mayView(ctx, v.fleets.o.Prefix, c.Name); {
		case err == nil:
			seen = append(seen, fleet.Summary{Name: c.Name, Members: members[c.Name]})
		case !errors.Is(err, consul.ErrDenied):
			return Clusters{}, err
		}
	}
	all.Clusters = seen
	return all, nil
}

// token is the viewer's own; nil: the viewer has the server's rights.
func (v *Viewer) token() *viewerToken {
	if v.session == nil {
		return nil
	}
	return v.session.token
}

// Fleet returns one cluster; an empty name is the default one. It returns
// consul.ErrDenied for one that the viewer may not see, or what Fleets.Fleet returns.
func (v *Viewer) Fleet(ctx context.Context, name string) (*Fleet, error) {
	if name == "" {
		name = v.fleets.o.Default
	}
	if v.session != nil {
		if err := v.session.mayView(ctx, v.fleets.o.Prefix, name); err != nil {
			return nil, err
		}
	}
	f, err := v.fleets.find(ctx, name, v.Clusters)
	if err != nil {
		return nil, err
	}
	return &Fleet{feed: f, sealed: v.Sealed, token: v.token()}, nil
}

// valid returns ErrLogin once the viewer's session has ended, and consul.ErrDenied once
// its token may no longer see the cluster.
func (v *Viewer) valid(ctx context.Context, f *Fleet) error {
	if v.session == nil {
		return nil
	}
	if v.session.expired(time.Now()) {
		return fmt.Errorf("%w: the session has ended", ErrLogin)
	}
	if err := v.session.mayView(ctx, v.fleets.o.Prefix, f.Name()); err != nil {
		return err
	}
	_, err := f.Snapshot(ctx)
	return err
}

type viewerKey struct{}

// ViewerOf returns the viewer of a request that the server let in.
func ViewerOf(ctx context.Context) *Viewer {
	v, _ := ctx.Value(viewerKey{}).(*Viewer)
	return v
}

// Bounds of sessions.
const (
	maxSessions   = 256
	maxOfToken    = 16 // of one token: one more ends the one that was used least recently
	maxOfAddress  = 64 // from one address; likewise
	sessionLife   = 8 * time.Hour
	sessionIdle   = time.Hour
	keyLife       = 10 * time.Minute // from the start of the server to the first use of its key
	rightsFor     = time.Minute      // how long an answer about a token's rights counts
	maxTokenBytes = 256
)

// session is one browser, or one token of a program.
type session struct {
	id      [sha256.Size]byte // of the cookie
	name    string
	address string // of the client that logged in, without its port

	// token is the viewer's own; nil: the session has the server's rights.
	token *viewerToken

	until time.Time // with a token

	mu   sync.Mutex
	last time.Time
	end  bool
}

func (s *session) expired(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end || s.token != nil && (now.After(s.until) || now.Sub(s.last) > sessionIdle)
}

func (s *session) touch(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = now
}

// used is when the session was used last.
func (s *session) used() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end = true; s.token != nil {
		s.token.client.Close()
	}
}

func (s *session) mayView(ctx context.Context, prefix, name string) error {
	s.touch(time.Now())
	if s.token == nil {
		return nil
	}
	return s.token.mayView(ctx, prefix, name)
}

// viewerToken is a viewer's own token. It is kept in memory only.
type viewerToken struct {
	client   *consul.Client
	accessor string

	mu     sync.Mutex
	rights map[string]right // by cluster
	sights map[string]sight // by cluster
	counts map[string]int   // of members that the token may read, by cluster
	at     time.Time        // of counts
}

// right is what Consul said about a token and a cluster.
type right struct {
	at  time.Time
	err error
}

// mayView returns consul.ErrDenied unless the token may read all that a cluster's state
// is made of. Consul is asked once a minute.
func (t *viewerToken) mayView(ctx context.Context, prefix, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if r, ok := t.rights[name]; ok && now.Sub(r.at) < rightsFor {
		return r.err
	}
	err := fleet.New(t.client, prefix, name).MayView(ctx)
	if err != nil && !errors.Is(err, consul.ErrDenied) {
		return err
	}
	maps.DeleteFunc(t.rights, func(_ string, r right) bool { return now.Sub(r.at) >= rightsFor }) // names that a viewer made up
	t.rights[name] = right{now, err}
	return err
}

// members returns how many members each cluster has whose records the token may read. Consul
// is asked once a minute.
func (t *viewerToken) members(ctx context.Context, prefix string) (map[string]int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); now.Sub(t.at) >= rightsFor {
		counts, err := fleet.ReadableMembers(ctx, t.client, prefix)
		if err != nil && !errors.Is(err, consul.ErrDenied) { // it may not list keys
			return nil, err
		}
		t.counts, t.at = counts, now
	}
	return t.counts, nil
}

// access decides who is admitted.
type access struct {
	fleets *Fleets
	sealed bool
	cookie string // its name
	secure bool   // the cookie is for TLS only
	certs  bool   // a verified client certificate is enough, and required
	logins bool   // with the viewer's own token
	local  bool   // only this host reaches the server
	consul config.Consul

	keyLife, sessionLife time.Duration

	mu       sync.Mutex
	key      [sha256.Size]byte // of the one-time key
	keyUntil time.Time         // zero: there is no key, or it was used
	sessions map[[sha256.Size]byte]*session

	acls   bool      // Consul has ACLs
	aclsAt time.Time // when Consul said so

	checking chan struct{} // bounds how many tokens are checked at a time
}

// newKey makes the one-time key.
func (a *access) newKey() string {
	key := rand.Text()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.key, a.keyUntil = sha256.Sum256([]byte(key)), time.Now().Add(a.keyLife)
	return key
}

// useKey begins a session with the one-time key. It returns ErrLogin.
func (a *access) useKey(w http.ResponseWriter, key string) error {
	sum := sha256.Sum256([]byte(key))
	a.mu.Lock()
	right := subtle.ConstantTimeCompare(sum[:], a.key[:]) == 1
	valid := right && time.Now().Before(a.keyUntil)
	if valid {
		a.keyUntil = time.Time{}
	}
	a.mu.Unlock()
	if !valid {
		return fmt.Errorf("%w: the key is wrong, was used already or has expired: start 'jorc ui' again", ErrLogin)
	}
	return a.begin(w, &session{})
}

// begin keeps a session and sends its cookie.
func (a *access) begin(w http.ResponseWriter, s *session) error {
	secret := rand.Text()
	if err := a.keep(s, secret); err != nil {
		return err
	}
	http.SetCookie(w, &http.Cookie{
		Name: a.cookie, Value: secret, Path: "/", HttpOnly: true, Secure: a.secure, SameSite: http.SameSiteStrictMode,
	})
	return nil
}

// keep stores a session by its secret; expired ones make room, and so does the one that was
// used least recently of a token or an address that has enough.
func (a *access) keep(s *session, secret string) error {
	now := time.Now()
	s.id, s.until, s.last = sha256.Sum256([]byte(secret)), now.Add(a.sessionLife), now
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, old := range a.sessions {
		if old.expired(now) {
			a.end(old)
		}
	}
	if s.token != nil {
		a.bound(maxOfToken, func(old *session) bool { return old.token != nil && old.token.accessor == s.token.accessor })
		a.bound(maxOfAddress, func(old *session) bool { return old.address == s.address })
	}
	if len(a.sessions) >= maxSessions {
		return fmt.Errorf("%w: %d viewers are logged in", ErrTooMany, maxSessions)
	}
	a.sessions[s.id] = s
	return nil
}

// bound leaves room for one more among the sessions of a kind. Its caller holds mu.
func (a *access) bound(most int, of func(*session) bool) {
	var all []*session
	for _, s := range a.sessions {
		if of(s) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *session) int { return a.used().Compare(b.used()) })
	for _, s := range all[:max(0, len(all)-most+1)] {
		a.end(s)
	}
}

// end ends a session. Its caller holds mu.
func (a *access) end(s *session) {
	s.close()
	delete(a.sessions, s.id)
}

// login makes a session of a viewer's own token. It returns ErrLogin, consul.ErrDenied for
// a token that may see no cluster, or consul.ErrUnreachable.
func (a *access) login(r *http.Request, token string) (*session, error) {
	ctx := r.Context()
	if token == "" || len(token) > maxTokenBytes || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("%w: this is not a token of Consul", ErrLogin)
	}
	select {
	case a.checking <- struct{}{}:
		defer func() { <-a.checking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c := a.consul
	c.Token, c.TokenFile, c.MaxConnections = config.Secret(token), "", 8
	client, err := consul.New(c)
	if err != nil {
		return nil, err
	}
	name, err := client.OwnToken(ctx)
	switch {
	case consul.ACLsDisabled(err):
		err = fmt.Errorf("%w: Consul's ACLs are switched off, so there are no tokens: use client certificates (tls { client_ca_file })", ErrLogin)
	case errors.Is(err, consul.ErrUnreachable):
	case err != nil:
		err = fmt.Errorf("%w: Consul does not know this token", ErrLogin) // its own error may quote the token
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	text := "token " + name.AccessorID
	if name.Description != "" {
		text += " (" + name.Description + ")"
	}
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = r.RemoteAddr
	}
	s := &session{name: text, address: address, token: &viewerToken{
		client: client, accessor: name.AccessorID, rights: map[string]right{}, sights: map[string]sight{},
	}}
	if err := a.seesAny(ctx, s); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// seesAny returns consul.ErrDenied, with the rights that are missing for the default cluster,
// if a session may see no cluster: it must not take the place of one that may.
func (a *access) seesAny(ctx context.Context, s *session) error {
	denied := s.mayView(ctx, a.fleets.o.Prefix, a.fleets.o.Default)
	if denied == nil || !errors.Is(denied, consul.ErrDenied) {
		return denied
	}
	all, err := (&Viewer{fleets: a.fleets, session: s}).Clusters(ctx)
	if err == nil && len(all.Clusters) == 0 {
		err = denied
	}
	return err
}

// logout ends the session of a request.
func (a *access) logout(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(a.cookie); err == nil {
		id := sha256.Sum256([]byte(cookie.Value))
		a.mu.Lock()
		if s := a.sessions[id]; s != nil {
			a.end(s)
		}
		a.mu.Unlock()
	}
	http.SetCookie(w, &http.Cookie{Name: a.cookie, Path: "/", MaxAge: -1, HttpOnly: true, Secure: a.secure, SameSite: http.SameSiteStrictMode})
}

// viewer returns who sent a request. It returns ErrLogin, ErrTooMany, consul.ErrDenied or
// consul.ErrUnreachable.
func (a *access) viewer(r *http.Request) (*Viewer, error) {
	v := &Viewer{Sealed: a.sealed, fleets: a.fleets}
	if a.certs {
		owner := certificateOwner(r.TLS)
		if owner == "" {
			return nil, fmt.Errorf("%w: a client certificate is needed", ErrLogin)
		}
		v.Name = owner
		return v, nil
	}
	if a.logins && a.local {
		acls, err := a.hasACLs(r.Context())
		if err != nil {
			return nil, err
		}
		if !acls { // all of this host may read Consul itself
			return v, nil
		}
	}
	s, err := a.session(r)
	if err != nil {
		return nil, err
	}
	s.touch(time.Now())
	v.Name, v.session, v.LogsOut = s.name, s, s.token != nil
	return v, nil
}

// hasACLs reports whether Consul has ACLs, so that there are tokens to log in with.
// It is asked once a minute.
func (a *access) hasACLs(ctx context.Context) (bool, error) {
	a.mu.Lock()
	known, at := a.acls, a.aclsAt
	a.mu.Unlock()
	if time.Since(at) < rightsFor {
		return known, nil
	}
	acls, err := a.fleets.o.Client.ACLsEnabled(ctx)
	if err != nil {
		return false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.acls, a.aclsAt = acls, time.Now()
	return acls, nil
}

// certificateOwner is the owner of the client's verified certificate.
func certificateOwner(state *tls.ConnectionState) string {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
		return ""
	}
	return "certificate " + state.PeerCertificates[0].Subject.String()
}

// session is that of the request's cookie, or of the token that a program sends.
func (a *access) session(r *http.Request) (*session, error) {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && a.logins {
		return a.program(r, token)
	}
	cookie, err := r.Cookie(a.cookie)
	if err != nil {
		return nil, ErrLogin
	}
	if s := a.find(cookie.Value); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("%w: the session has ended", ErrLogin)
}

func (a *access) find(secret string) *session {
	id := sha256.Sum256([]byte(secret))
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[id]
	if s == nil || s.expired(time.Now()) {
		return nil
	}
	return s
}

// program is the session of a program that sends its token with each request.
func (a *access) program(r *http.Request, token string) (*session, error) {
	secret := "token " + token // no cookie has a blank
	if s := a.find(secret); s != nil {
		return s, nil
	}
	s, err := a.login(r, token)
	if err != nil {
		return nil, err
	}
	if err := a.keep(s, secret); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// closeAll ends all sessions.
func (a *access) closeAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.sessions {
		s.close()
	}
	clear(a.sessions)
}

// only leaves the clusters of names; no names leave all.
func only(all []fleet.Summary, names []string) []fleet.Summary {
	if len(names) == 0 {
		return all
	}
	kept := []fleet.Summary{}
	for _, name := range names {
		i := slices.IndexFunc(all, func(s fleet.Summary) bool { return s.Name == name })
		if i < 0 {
			kept = append(kept, fleet.Summary{Name: name})
			continue
		}
		kept = append(kept, all[i])
	}
	return kept
}

package ui

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/web"
)

// Limits on the resources that viewers use.
const (
	maxStreams    = 512
	maxAnswers    = 16 // requests that are answered at a time
	maxLoginBytes = 4 << 10
	writeTimeout  = 40 * time.Second // longer than answerTimeout
	answerTimeout = 30 * time.Second
)

// Pages are the HTML for browsers. Each part may be missing.
type Pages struct {
	// Handler answers everything but the API; ViewerOf names the viewer.
	Handler http.Handler
	// Assets answers paths below /assets/ without a login: they hold no data.
	Assets http.Handler
	// Refused answers a browser that is not logged in.
	Refused func(w http.ResponseWriter, r *http.Request, refusal Refusal)
}

// Refusal is why a browser sees nothing.
type Refusal struct {
	Status int
	Why    string
	// Login: a form that posts "token" to /login is of use.
	Login bool
}

// Options are what a Server needs. Addr, Fleets and Log must be set.
type Options struct {
	Addr   string // host:port; port 0 takes a free one
	Fleets *Fleets
	Pages  Pages
	// Key lets in the browser that brings the one-time key of Server.URL, with the
	// rights of Fleets. Without it viewers bring certificates or tokens of their own,
	// and no param is shown.
	Key         bool
	KeyLife     time.Duration // from the start to the first use of the key; default 10 min
	SessionLife time.Duration // of viewers with a token of their own; default 8 h
	// Consul is where viewers' tokens are checked.
	Consul config.Consul
	TLS    config.UITLS
	Log    hclog.Logger
}

// Server serves a fleet to browsers and programs.
type Server struct {
	o        Options
	access   *access
	tls      *tls.Config // nil: plain HTTP
	listener *web.Listener

	mu  sync.Mutex
	key string
}

// ErrInsecure: the address is not a loopback one, and TLS is missing.
var ErrInsecure = errors.New("not on loopback without TLS")

// New returns a server that does not listen yet. It reads certificates, and does no
// other I/O. It returns ErrInsecure, or why a certificate cannot be used.
func New(o Options) (*Server, error) {
	o.KeyLife, o.SessionLife = cmp.Or(o.KeyLife, keyLife), cmp.Or(o.SessionLife, sessionLife)
	s := &Server{o: o, listener: web.NewListener("ui", o.Addr, o.Log)}
	_, _, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", o.Addr, err)
	}
	local := config.OnLoopback(o.Addr)
	switch {
	case o.Key && !local:
		return nil, fmt.Errorf("address %q: %w: 'jorc ui' is for this host alone; for a team see the agent's ui block", o.Addr, ErrInsecure)
	case !local && o.TLS.CertFile == "":
		return nil, fmt.Errorf("address %q: %w: set cert_file and key_file in ui { tls { … } }", o.Addr, ErrInsecure)
	}
	if o.TLS.CertFile != "" {
		if s.tls, err = serverTLS(o.TLS); err != nil {
			return nil, err
		}
	}
	s.access = &access{
		fleets: o.Fleets, sealed: !o.Key, secure: s.tls != nil, certs: o.TLS.ClientCAFile != "", logins: !o.Key && o.TLS.ClientCAFile == "", local: local,
		consul: o.Consul, keyLife: o.KeyLife, sessionLife: o.SessionLife, sessions: map[[sha256.Size]byte]*session{}, checking: make(chan struct{}, 4),
	}
	return s, nil
}

// serverTLS reads the certificates of c. The server's own is read again for new
// connections after it was replaced.
func serverTLS(c config.UITLS) (*tls.Config, error) {
	pair := &keyPair{cert: c.CertFile, key: c.KeyFile}
	if _, err := pair.get(nil); err != nil {
		return nil, err
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.get, NextProtos: []string{"h2", "http/1.1"}}
	if c.ClientCAFile == "" {
		return t, nil
	}
	data, err := os.ReadFile(c.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("ui: client_ca_file: %w", err)
	}
	t.ClientCAs, t.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !t.ClientCAs.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("ui: client_ca_file %s: no certificate in PEM", c.ClientCAFile)
	}
	return t, nil
}

// keyPair is a certificate that is read again when its file changes.
type keyPair struct {
	cert, key string

	mu     sync.Mutex
	loaded *tls.Certificate
	mod    time.Time
}

func (p *keyPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	info, err := os.Stat(p.cert)
	if err == nil && p.loaded != nil && info.ModTime().Equal(p.mod) {
		return p.loaded, nil
	}
	if err == nil {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(p.cert, p.key); err == nil {
			p.loaded, p.mod = &pair, info.ModTime()
		}
	}
	if p.loaded != nil { // a certificate that is being replaced does not end the service
		return p.loaded, nil
	}
	return nil, fmt.Errorf("ui: certificate: %w", err)
}

// Listen binds the address, so that an unusable one is an error before the program
// starts. Run or Close releases it.
func (s *Server) Listen(ctx context.Context) error {
	if err := s.listener.Listen(ctx); err != nil {
		return fmt.Errorf("ui on %s: %w", s.o.Addr, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, port, _ := net.SplitHostPort(s.Addr())
	cookie := "jorc_ui_" + port // cookies do not tell ports apart
	if s.tls != nil {
		cookie = "__Host-" + cookie
	}
	if s.access.cookie == cookie {
		return nil
	}
	s.access.cookie = cookie
	if s.o.Key {
		s.key = s.access.newKey()
	}
	return nil
}

// Addr is the listener's address with its actual port; empty: the server does not listen.
func (s *Server) Addr() string { return s.listener.Addr() }

// URL is the address for a browser, with the one-time key if there is one.
func (s *Server) URL() string {
	u := url.URL{Scheme: "http", Host: s.Addr(), Path: "/"}
	if s.tls != nil {
		u.Scheme = "https"
	}
	if s.key != "" {
		u.RawQuery = url.Values{"key": {s.key}}.Encode()
	}
	return u.String()
}

// Close releases the address of a server if Run is not called.
func (s *Server) Close() error { return s.listener.Close() }

// Run serves until ctx ends; then it ends all streams and returns nil. Fleets has to
// run for as long. It calls Listen if the server does not listen yet.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(ctx); err != nil {
		return err
	}
	defer s.access.closeAll()
	s.o.Log.Info("the fleet is shown", "address", s.Addr())
	return s.listener.Serve(ctx, &http.Server{Handler: s.handler(ctx), WriteTimeout: writeTimeout, TLSConfig: s.tls})
}

// policy lets a page load its own styles, scripts and pictures, and nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// handler is everything that the server answers until ctx ends; addr is its own.
func (s *Server) handler(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/fleet/", s.api(ctx))
	mux.HandleFunc("GET /{$}", s.root)
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) { s.refuse(w, r, http.StatusOK, "") })
	mux.HandleFunc("POST /login", s.postLogin)
	mux.HandleFunc("POST /logout", func(w http.ResponseWriter, r *http.Request) {
		s.access.logout(w, r)
		s.seeOther(w, "/")
	})
	if s.o.Pages.Assets != nil {
		mux.Handle("GET /assets/", s.o.Pages.Assets)
	}
	mux.Handle("/", s.pages())
	protection := http.NewCrossOriginProtection()
	h := protection.Handler(sameSite(mux))
	if s.tls == nil {
		h = web.LocalOnly(h)
	} else {
		h = s.ownName(h)
	}
	return headers(h)
}

// headers are those of every answer. Only logins may be posted.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		post := r.Method == http.MethodPost && (r.URL.Path == "/login" || r.URL.Path == "/logout")
		if r.Method != http.MethodGet && r.Method != http.MethodHead && !post {
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "nothing can be changed here: use GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sameSite refuses requests that a page of another site makes for data; links from
// elsewhere may lead to pages.
func sameSite(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site, mode := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Sec-Fetch-Mode")
		if (site == "cross-site" || site == "same-site") && mode != "navigate" {
			http.Error(w, "this is for pages of the same origin only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownName refuses requests whose Host header is not a name or an address of the
// server's certificate, or the address that the client reached.
func (s *Server) ownName(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		if !s.isOwnName(host, r) {
			http.Error(w, "the Host header names another host than the server's certificate", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) isOwnName(host string, r *http.Request) bool {
	if reached, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		if ip, _, err := net.SplitHostPort(reached.String()); err == nil && ip == host {
			return true
		}
	}
	pair, err := s.tls.GetCertificate(nil)
	if err != nil || len(pair.Certificate) == 0 {
		return false
	}
	leaf := pair.Leaf
	if leaf == nil {
		if leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return false
		}
	}
	return leaf.VerifyHostname(host) == nil
}

// root answers the address that was printed with the key, and the first page.
func (s *Server) root(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Query().Get("key")
	if key == "" || !s.o.Key {
		s.pages().ServeHTTP(w, r)
		return
	}
	if r.Method == http.MethodHead { // what asks without wanting an answer, such as a preview of links
		s.welcome(w)
		return
	}
	if err := s.access.useKey(w, key); err != nil {
		if _, known := s.access.viewer(r); known == nil { // the address was opened again
			s.welcome(w)
			return
		}
		s.refuse(w, r, http.StatusUnauthorized, err.Error())
		return
	}
	s.welcome(w)
}

// welcome leads on to the first page. A redirect would not do: a browser that comes
// from elsewhere sends no SameSite=Strict cookie along its way.
func (s *Server) welcome(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	s.write(w, []byte("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>jorc</title>"+
		"<meta http-equiv=\"refresh\" content=\"0; url=/\"></head><body><p><a href=\"/\">Open the fleet</a></p></body></html>\n"))
}

func (s *Server) seeOther(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// postLogin begins a session with the viewer's own token.
func (s *Server) postLogin(w http.ResponseWriter, r *http.Request) {
	if !s.access.logins {
		s.refuse(w, r, http.StatusForbidden, "this server takes no tokens")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxLoginBytes)
	if err := r.ParseForm(); err != nil {
		s.refuse(w, r, http.StatusBadRequest, "the form cannot be read")
		return
	}
	session, err := s.access.login(r, strings.TrimSpace(r.PostForm.Get("token")))
	if err == nil {
		if err = s.access.begin(w, session); err != nil {
			session.close()
		}
	}
	if err != nil {
		s.refuse(w, r, statusOf(err), err.Error())
		return
	}
	s.seeOther(w, "/")
}

// refuse answers a browser that sees nothing.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	if s.o.Pages.Refused != nil {
		s.o.Pages.Refused(w, r, Refusal{Status: status, Why: why, Login: s.access.logins})
		return
	}
	if why == "" || s.access.logins {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		s.write(w, []byte("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>jorc</title></head><body>"+
			"<p>"+html.EscapeString(why)+"</p><form method=\"post\" action=\"/login\"><label>Consul token <input type=\"password\" name=\"token\" autocomplete=\"off\"></label> "+
			"<button>Log in</button></form></body></html>\n"))
		return
	}
	http.Error(w, why, status)
}

func (s *Server) write(w http.ResponseWriter, body []byte) {
	if _, err := w.Write(body); err != nil {
		s.o.Log.Debug("a viewer left", "error", err)
	}
}

// pages lets viewers through to the HTML.
func (s *Server) pages() http.Handler {
	next := s.o.Pages.Handler
	if next == nil {
		next = http.NotFoundHandler()
	}
	limited := web.Limit(maxAnswers, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := s.access.viewer(r)
		if err != nil {
			s.refuse(w, r, statusOf(err), err.Error())
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		limited.ServeHTTP(w, r.WithContext(context.WithValue(ctx, viewerKey{}, v)))
	})
}

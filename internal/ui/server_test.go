package ui_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/ui"
	"github.com/jorc/jorc/internal/ui/uitest"
)

// serve runs a server until the test ends, and returns its address with the key.
func (f *fixture) serve(o ui.Options) string {
	f.t.Helper()
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.Fleets == nil {
		o.Fleets = f.Fleets
	}
	o.Log = hclog.NewNullLogger()
	server, err := ui.New(o)
	f.Must(nil, err)
	f.Must(nil, server.Listen(f.t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("Run = %v", err)
		}
	})
	return server.URL()
}

// browser is an HTTP client with cookies.
type browser struct {
	t    testing.TB
	base *url.URL
	http *http.Client
}

// browse returns a browser that has opened the address.
func (f *fixture) browse(address string) *browser {
	f.t.Helper()
	base, err := url.Parse(address)
	f.Must(nil, err)
	jar, err := cookiejar.New(nil)
	f.Must(nil, err)
	b := &browser{f.t, base, &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	b.get(address, nil)
	return b
}

// get asks for a path, or an address, with headers.
func (b *browser) get(path string, headers map[string]string) (status int, body string, header http.Header) {
	b.t.Helper()
	return b.do(http.MethodGet, path, headers, "")
}

func (b *browser) do(method, path string, headers map[string]string, body string) (int, string, http.Header) {
	b.t.Helper()
	address := path
	if strings.HasPrefix(path, "/") {
		address = b.base.Scheme + "://" + b.base.Host + path
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for name, value := range headers {
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	answer, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer.StatusCode, string(data), answer.Header
}

// views are paths of the API below a cluster.
var views = []string{
	"", "/attention", "/changes", "/hosts", "/targets", "/events", "/services", "/dependencies", "/slots", "/leaders", "/profile", "/audit",
	"/profile?values=true", "/hosts?columns=Params,Meta,Params.db_password",
}

// one is the path of the test's cluster.
func (f *fixture) one() string { return "/v1/fleet/clusters/" + f.name }

func TestKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	address := f.serve(ui.Options{Key: true})
	stranger := &browser{t, f.browse(strings.Split(address, "?")[0]).base, http.DefaultClient}
	for _, path := range append([]string{"/", "/hosts"}, f.one(), f.one()+"/hosts", f.one()+"/stream", "/v1/fleet/clusters") {
		if status, body, _ := stranger.get(path, nil); status != http.StatusUnauthorized || strings.Contains(body, f.Node("a")) {
			t.Errorf("%s without a key: %d %s", path, status, body)
		}
	}
	if status, _, _ := stranger.get("/?key=wrong", nil); status != http.StatusUnauthorized {
		t.Errorf("a wrong key: %d", status)
	}
	b := f.browse(address)
	cookies := b.http.Jar.Cookies(b.base)
	if len(cookies) != 1 {
		t.Fatalf("cookies: %v", cookies)
	}
	for _, view := range views {
		status, body, header := b.get(f.one()+view, nil)
		if status != http.StatusOK || strings.Contains(body, uitest.Secret) {
			t.Errorf("%s: %d %s", view, status, body)
		}
		policy := header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: header %v", view, header)
		}
	}
	if status, body, _ := b.get(f.one()+"/profile?values=true", nil); status != http.StatusOK || !strings.Contains(body, "welcome") {
		t.Errorf("values that were asked for: %d %s", status, body)
	}
	// The key lets in one browser; for that one the address stays good.
	if status, _, _ := stranger.get(address, nil); status != http.StatusUnauthorized {
		t.Errorf("the key a second time: %d", status)
	}
	if status, _, _ := b.get(address, nil); status != http.StatusOK {
		t.Errorf("the address again: %d", status)
	}
}

func TestCookie(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, _, header := (&browser{t, nil, http.DefaultClient}).get(f.serve(ui.Options{Key: true}), nil)
	cookie := header.Get("Set-Cookie")
	if !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Strict") {
		t.Errorf("cookie %q", cookie)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.browse(f.serve(ui.Options{Key: true}))
	for what, q := range map[string]struct {
		method, path string
		headers      map[string]string
		want         int
	}{
		"a name of another site":        {path: f.one(), headers: map[string]string{"Host": "evil.example"}, want: http.StatusForbidden},
		"localhost, without a cookie":   {path: f.one(), headers: map[string]string{"Host": "localhost:1"}, want: http.StatusUnauthorized},
		"a page of another site":        {path: f.one(), headers: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, want: http.StatusForbidden},
		"the own page":                  {path: f.one(), headers: map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, want: http.StatusOK},
		"a form of another site":        {method: http.MethodPost, path: "/logout", headers: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, want: http.StatusForbidden},
		"a write":                       {method: http.MethodPost, path: f.one(), want: http.StatusMethodNotAllowed},
		"another write":                 {method: http.MethodDelete, path: f.one() + "/hosts/" + f.Node("a"), want: http.StatusMethodNotAllowed},
		"a cluster that does not exist": {path: "/v1/fleet/clusters/nothing", want: http.StatusNotFound},
		"a host that does not exist":    {path: f.one() + "/hosts/nothing", want: http.StatusNotFound},
		"a run that does not exist":     {path: f.one() + "/changes/run.nothing", want: http.StatusNotFound},
		"a service that does not exist": {path: f.one() + "/services/nothing", want: http.StatusNotFound},
		"a stage that does not exist":   {path: f.one() + "/changes/files.nothing", want: http.StatusNotFound},
		"a version that was never":      {path: f.one() + "/changes/version.nothing", want: http.StatusNotFound},
		"a lease that nobody has":       {path: f.one() + "/changes/lease.nothing", want: http.StatusNotFound},
		"a change of no kind":           {path: f.one() + "/changes/nothing", want: http.StatusNotFound},
		"changes of no kind":            {path: f.one() + "/changes?kind=nothing", want: http.StatusBadRequest},
		"changes in no state":           {path: f.one() + "/changes?state=nothing", want: http.StatusBadRequest},
		"a path that does not exist":    {path: "/v1/fleet/nothing", want: http.StatusNotFound},
		"a wrong filter":                {path: f.one() + "/hosts?filter=" + url.QueryEscape("Zone ="), want: http.StatusBadRequest},
		"a wrong page":                  {path: f.one() + "/hosts?limit=0x1", want: http.StatusBadRequest},
		"an unknown parameter":          {path: f.one() + "/hosts?limt=1", want: http.StatusBadRequest},
	} {
		if q.method == "" {
			q.method = http.MethodGet
		}
		if status, body, _ := b.do(q.method, q.path, q.headers, ""); status != q.want {
			t.Errorf("%s: %d %s; want %d", what, status, body, q.want)
		}
	}
}

func TestInsecure(t *testing.T) {
	t.Parallel()
	for _, o := range []ui.Options{{Addr: "0.0.0.0:0"}, {Addr: "0.0.0.0:0", Key: true}, {Addr: "[::]:0"}, {Addr: "10.0.0.1:1"}} {
		if _, err := ui.New(o); !errors.Is(err, ui.ErrInsecure) {
			t.Errorf("New(%+v) = %v; want ErrInsecure", o, err)
		}
	}
}

// stream is an open stream of server-sent events.
type stream struct {
	t       testing.TB
	scanner *bufio.Scanner
	close   func()
}

// message is one server-sent event.
type message struct{ id, kind, data string }

func (b *browser) stream(path, last string) (*stream, int) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base.Scheme+"://"+b.base.Host+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	answer, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	s := &stream{b.t, bufio.NewScanner(answer.Body), func() { cancel(); answer.Body.Close() }}
	b.t.Cleanup(s.close)
	return s, answer.StatusCode
}

// next is the next message of a kind; empty: of any.
func (s *stream) next(kind string) message {
	s.t.Helper()
	var m message
	for s.scanner.Scan() {
		name, value, _ := strings.Cut(s.scanner.Text(), ": ")
		switch name {
		case "id":
			m.id = value
		case "event":
			m.kind = value
		case "data":
			m.data = value
		case "":
			if m.kind != "" && (kind == "" || m.kind == kind) {
				return m
			}
			m = message{}
		}
	}
	s.t.Fatalf("the stream ended: %v", s.scanner.Err())
	return m
}

func TestStream(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Orchestrate("a")
	b := f.browse(f.serve(ui.Options{Key: true}))
	f.eventually("events are journalled", f.fleet(false), func(s *ui.Snapshot) string {
		if s.LastSeq == 0 {
			return "none"
		}
		return ""
	})
	s, status := b.stream(f.one()+"/stream?kind=cluster_paused", "")
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	var first, next ui.Latest
	f.Must(nil, json.Unmarshal([]byte(s.next(ui.MessageChange).data), &first))
	f.Must(f.Pause(t.Context(), cluster.Hold{Reason: "</script>\n\nevent: end"}))
	event := s.next(ui.MessageEvent)
	if !strings.Contains(event.data, "cluster_paused") || event.id == "" || strings.Contains(event.data, "<") {
		t.Errorf("event: %+v", event)
	}
	f.Must(nil, json.Unmarshal([]byte(s.next(ui.MessageChange).data), &next))
	if next.Generation <= first.Generation {
		t.Errorf("generation %d after %d", next.Generation, first.Generation)
	}
	s.close()

	// What happened meanwhile is sent to a browser that comes back.
	f.Must(f.Resume(t.Context()))
	f.eventually("the pause is over", f.fleet(false), func(s *ui.Snapshot) string {
		if events := s.Events(ui.EventQuery{Kinds: []string{"cluster_resumed"}}); len(events.Events) == 0 {
			return "no event"
		}
		return ""
	})
	resumed, _ := b.stream(f.one()+"/stream", event.id)
	for {
		m := resumed.next("")
		if m.kind == ui.MessageEvent && strings.Contains(m.data, "cluster_resumed") {
			break
		}
		if m.kind == ui.MessageChange || m.kind == ui.MessageReset {
			t.Fatalf("not resumed: %+v", m)
		}
	}
	for _, last := range []string{"999999", "nonsense"} {
		unknown, _ := b.stream(f.one()+"/stream", last)
		if m := unknown.next(""); m.kind != ui.MessageReset {
			t.Errorf("Last-Event-ID %s: %+v; want a reset", last, m)
		}
	}
}

// TestStreamsAskNothing: what 50 viewers see costs Consul what one costs.
func TestStreamsAskNothing(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	p := s.Proxy()
	f := newFixtureOn(t, s, p.Client(), "prod")
	b := f.browse(f.serve(ui.Options{Key: true}))
	change := func(open []*stream, reason string) int {
		before := p.Asked("/")
		f.Must(f.Pause(t.Context(), cluster.Hold{Reason: reason}))
		for _, s := range open {
			for {
				if strings.Contains(s.next(ui.MessageChange).data, `"problems":4`) {
					break
				}
			}
		}
		f.Must(f.Resume(t.Context()))
		for _, s := range open {
			for {
				if strings.Contains(s.next(ui.MessageChange).data, `"problems":3`) {
					break
				}
			}
		}
		return p.Asked("/") - before
	}
	open := func(n int) (all []*stream) {
		for range n {
			one, status := b.stream(f.one()+"/stream", "")
			if status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
			one.next(ui.MessageChange)
			all = append(all, one)
		}
		return all
	}
	one := open(1)
	change(one, "warm")
	single := change(one, "one")
	many := change(append(one, open(49)...), "many")
	if limit := single + single/2 + 4; many > limit { // changes that come close together are read at once, or not
		t.Errorf("50 streams asked Consul %d times, one stream %d times", many, single)
	}
}

// TestDeniedPart: a team's viewer whose token may not read one prefix of a cluster gets 403 for the
// answers and the stream, also while another viewer sees the cluster. Package pages tests the pages.
func TestDeniedPart(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	f := newFixtureOn(t, s, s.Client(), "prod")
	address := f.serve(ui.Options{Consul: s.Config()})
	all := `key_prefix "jorc/prod/" { policy = "read" } node_prefix "" { policy = "read" } service_prefix "" { policy = "read" } `
	base := &browser{t, f.browse(address).base, &http.Client{}}
	ask := func(token, path string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base.base.Scheme+"://"+base.base.Host+path, nil)
		f.Must(nil, err)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := base.http.Do(r)
		f.Must(nil, err)
		defer answer.Body.Close()
		if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") { // it has no end
			return answer.StatusCode, ""
		}
		body, err := io.ReadAll(answer.Body)
		f.Must(nil, err)
		return answer.StatusCode, string(body)
	}
	paths := []string{f.one() + "/hosts/" + f.Node("a")}
	for _, view := range views {
		paths = append(paths, f.one()+view)
	}
	sees := s.NewToken(all)
	for _, path := range paths { // what one viewer sees is read for all
		if status, body := ask(sees, path); status != http.StatusOK {
			t.Errorf("with all rights, %s: %d %s", path, status, body)
		}
	}
	for _, prefix := range []string{"current/", "host/", "nodes/", "runs/", "slots/", "view/", "stages/", "audit/", "history/", "orchestrate/"} {
		token := s.NewToken(all + `key_prefix "jorc/prod/` + prefix + `" { policy = "deny" }`)
		for _, path := range append([]string{f.one() + "/stream"}, paths...) {
			status, body := ask(token, path)
			if status != http.StatusForbidden || strings.Contains(body, f.Node("a")) || !strings.Contains(body, "jorc/prod/"+strings.TrimSuffix(prefix, "/")) {
				t.Errorf("without %s, %s: %d %s; want 403 that names the prefix", prefix, path, status, body)
			}
		}
		var clusters ui.Clusters
		_, body := ask(token, "/v1/fleet/clusters")
		if err := json.Unmarshal([]byte(body), &clusters); err != nil || len(clusters.Clusters) > 0 {
			t.Errorf("without %s: the clusters %s, %v", prefix, body, err)
		}
	}
}

// TestRights: a team's viewers see the clusters that their own token may read, and no
// params.
func TestRights(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	f := newFixtureOn(t, s, s.Client(), "prod")
	address := f.serve(ui.Options{Consul: s.Config()})
	all := `key_prefix "jorc/prod/" { policy = "read" } node_prefix "" { policy = "read" } service_prefix "" { policy = "read" }`
	few := `key_prefix "jorc/other/" { policy = "read" } node_prefix "" { policy = "read" }`
	base := &browser{t, f.browse(address).base, &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	for what, q := range map[string]struct {
		token string
		want  int
	}{
		"no token":                     {"", http.StatusUnauthorized},
		"no token of Consul":           {"11111111-2222-3333-4444-555555555555", http.StatusUnauthorized},
		"a token that may read little": {s.NewToken(few), http.StatusForbidden},
		"a token that may read all":    {s.NewToken(all), http.StatusOK},
	} {
		headers := map[string]string{}
		if q.token != "" {
			headers["Authorization"] = "Bearer " + q.token
		}
		for _, view := range append([]string{"/hosts/" + f.Node("a")}, views...) {
			status, body, _ := base.get(f.one()+view, headers)
			if status != q.want || strings.Contains(body, uitest.Secret) || strings.Contains(body, "welcome") || q.token != "" && strings.Contains(body, q.token) {
				t.Errorf("%s, %s: %d %s; want %d", what, view, status, body, q.want)
			}
		}
	}

	// A browser logs in with a form.
	token := s.NewToken(all)
	b := f.browse(address)
	form := func(token string) (int, string, http.Header) {
		return b.do(http.MethodPost, "/login", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, url.Values{"token": {token}}.Encode())
	}
	if status, body, _ := form("wrong"); status != http.StatusUnauthorized || strings.Contains(body, "wrong") {
		t.Errorf("a wrong token: %d %s", status, body)
	}
	status, _, header := form(token)
	if status != http.StatusSeeOther || strings.Contains(fmt.Sprint(header), token) {
		t.Errorf("login: %d %v", status, header)
	}
	if status, _, _ := b.get(f.one(), nil); status != http.StatusOK {
		t.Errorf("after the login: %d", status)
	}
	if status, _, _ := b.do(http.MethodPost, "/logout", nil, ""); status != http.StatusSeeOther {
		t.Errorf("logout: %d", status)
	}
	if status, _, _ := b.get(f.one(), nil); status != http.StatusUnauthorized {
		t.Errorf("after the logout: %d", status)
	}
}

func TestExpired(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.browse(f.serve(ui.Options{Key: true, KeyLife: 1}))
	if status, body, _ := b.get(f.one(), nil); status != http.StatusUnauthorized {
		t.Errorf("with an expired key: %d %s", status, body)
	}
	s := consultest.Start(t, consultest.WithACL())
	acl := newFixtureOn(t, s, s.Client(), "prod")
	b = acl.browse(acl.serve(ui.Options{Consul: s.Config(), SessionLife: 1}))
	status, _, _ := b.do(http.MethodPost, "/login", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, url.Values{"token": {s.RootToken}}.Encode())
	if status != http.StatusSeeOther {
		t.Errorf("login: %d", status)
	}
	if status, body, _ := b.get(acl.one(), nil); status != http.StatusUnauthorized || !strings.Contains(body, "has ended") {
		t.Errorf("with an expired session: %d %s", status, body)
	}
}

// TestStreamsAreBounded: the number of streams is bounded, and idle ones do not delay
// answers.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.browse(f.serve(ui.Options{Key: true}))
	for n := 0; ; n++ {
		_, status := b.stream(f.one()+"/stream", "")
		if status == http.StatusServiceUnavailable && n > 50 {
			break
		}
		if status != http.StatusOK || n > 1000 {
			t.Fatalf("stream %d: %d", n, status)
		}
	}
	if status, _, _ := b.get(f.one()+"/hosts", nil); status != http.StatusOK {
		t.Errorf("beside idle streams: %d", status)
	}
}

// pair writes a certificate and its key below dir, signed by parent (nil: by itself).
func pair(t testing.TB, dir, name string, parent *tls.Certificate) (certFile, keyFile string, made tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, IPAddresses: []net.IP{net.ParseIP("127.0.0.1")}, IsCA: parent == nil, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	above, signer := text, any(key)
	if parent != nil {
		above, signer = parent.Leaf, parent.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, text, above, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if made, err = tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile, made
}

// TestCertificates: where viewers bring certificates, no other one sees anything.
func TestCertificates(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dir := t.TempDir()
	ca, _, authority := pair(t, dir, "ca", nil)
	cert, key, _ := pair(t, dir, "server.example", &authority)
	_, _, viewer := pair(t, dir, "ann", &authority)
	_, _, stranger := pair(t, dir, "stranger", nil)
	address := f.serve(ui.Options{TLS: config.UITLS{CertFile: cert, KeyFile: key, ClientCAFile: ca}})
	if !strings.HasPrefix(address, "https://") {
		t.Fatalf("address %q", address)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.Leaf)
	with := func(certs ...tls.Certificate) *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs}}}
	}
	for what, h := range map[string]*http.Client{"no certificate": with(), "a foreign certificate": with(stranger)} {
		if answer, err := h.Get(address + "v1/fleet/clusters"); err == nil {
			t.Errorf("%s: %s", what, answer.Status)
			answer.Body.Close()
		}
	}
	base, err := url.Parse(address)
	f.Must(nil, err)
	b := &browser{t, base, with(viewer)}
	for _, view := range views {
		if status, body, _ := b.get(f.one()+view, nil); status != http.StatusOK || strings.Contains(body, uitest.Secret) || strings.Contains(body, "welcome") {
			t.Errorf("%s: %d %s", view, status, body)
		}
	}
	for host, want := range map[string]int{"server.example:1": http.StatusOK, "127.0.0.1": http.StatusOK, "evil.example": http.StatusForbidden} {
		if status, _, _ := b.get(f.one(), map[string]string{"Host": host}); status != want {
			t.Errorf("Host %s: %d; want %d", host, status, want)
		}
	}
}

// TestHostileTexts: what hosts and operators write stays text.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const hostile = "\"><script>alert(1)</script>\u2028\r\n\x1b[31m"
	f.Must(f.Pause(t.Context(), cluster.Hold{Reason: hostile, By: hostile}))
	f.Must(f.SetState(t.Context(), f.Node("a"), cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateFailed, Detail: hostile, LogURL: "javascript:alert(1)"}))
	f.Must(f.Join(t.Context(), f.Node("b"), func(r cluster.Record) (cluster.Record, error) {
		r.Zone = hostile
		r.Provides, r.Requires = []string{"<script>x"}, []cluster.Requirement{{Target: "</svg><script>y"}}
		return r, nil
	}))
	fleet := f.fleet(false)
	s := f.eventually("the texts are shown", fleet, missing("paused", "failed"))
	svg, err := s.DependenciesSVG(func(kind, name string) string { return "/" + kind + "/" + url.PathEscape(name) })
	if err != nil || strings.Contains(svg, "<script") {
		t.Errorf("drawing: %v %s", err, svg)
	}
	b := f.browse(f.serve(ui.Options{Key: true}))
	for _, view := range append([]string{"/hosts/" + f.Node("a"), "/hosts/" + f.Node("b")}, views...) {
		status, body, header := b.get(f.one()+view, nil)
		if status != http.StatusOK || strings.ContainsAny(strings.TrimSpace(body), "<\x1b\r\n") {
			t.Errorf("%s: %d %s", view, status, body)
		}
		if header.Get("Content-Type") != "application/json" || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", view, header)
		}
	}
}

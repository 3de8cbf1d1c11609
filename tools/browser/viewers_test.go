package browser_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/security"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/jorc/jorc/internal/consultest"
)

// streamCounter passes requests on to the dashboard and counts its open streams.
func streamCounter(t testing.TB, address string) (through string, open *atomic.Int64) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: u.Scheme, Host: u.Host})
	proxy.FlushInterval = -1
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) } // mostly the browser left
	open = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/stream") {
			open.Add(1)
			defer open.Add(-1)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.Replace(address, u.Scheme+"://"+u.Host, server.URL, 1), open
}

// TestHiddenTab: a hidden tab gives its stream up; when it is shown again it is current
// and follows.
func TestHiddenTab(t *testing.T) {
	s := consultest.Start(t)
	h := newHost(t, s, "")
	h.jorc("cluster", "init", clusterName)
	h.jorc("cluster", "join", "--node", "n1")
	address, open := streamCounter(t, h.ui())
	w := newTab(t, newBrowser(t))
	base := w.enter(address)
	w.open(base + "/hosts")
	w.live()
	streams := func(want int64) {
		t.Helper()
		eventually(t, fmt.Sprint(want, " streams"), func() error {
			if got := open.Load(); got != want {
				return fmt.Errorf("%d streams, the tab is hidden: %t", got, eval[bool](w, `document.hidden`))
			}
			return nil
		})
	}
	streams(1)
	other, err := chromedp.CallBrowser(w.ctx, target.CreateTarget, target.CreateTargetParams{URL: "about:blank"})
	if err != nil {
		t.Fatal(err)
	}
	streams(0)
	h.jorc("cluster", "join", "--node", "while-hidden")
	if _, err := chromedp.CallBrowser(w.ctx, target.CloseTarget, target.CloseTargetParams{TargetID: other.TargetID}); err != nil {
		t.Fatal(err)
	}
	call(w, page.BringToFront, cdp.Empty{})
	w.shows("while-hidden")
	streams(1)
	w.live()
	h.jorc("cluster", "join", "--node", "later")
	w.shows("later")
	w.clean()
}

// serverCertificate writes a certificate that nothing trusts.
func serverCertificate(t testing.TB, h *host) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, text, text, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = h.path("ui.pem"), h.path("ui.key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// freePort returns a port of 127.0.0.1 that was free.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestLogin: viewers of an agent log in over TLS with their own token; they see what it
// may read until they log out, or the agent starts again.
func TestLogin(t *testing.T) {
	s := consultest.Start(t, consultest.WithACL())
	h := newHost(t, s, s.RootToken)
	h.jorc("cluster", "init", clusterName)
	h.jorc("cluster", "profile", "set", "motd", "welcome")
	cert, key := serverCertificate(t, h)
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	more := fmt.Sprintf("orchestrator {}\nui {\n  address = %q\n  tls {\n    cert_file = %q\n    key_file  = %q\n  }\n}\n", address, cert, key)
	h.agent("web", more)
	h.jorc("cluster", "wait", "--for", "members=1", "--timeout", "0")

	w := newTab(t, newBrowser(t))
	call(w, security.SetIgnoreCertificateErrors, security.SetIgnoreCertificateErrorsParams{Ignore: true})
	base := "https://" + address
	w.open(base + "/hosts")
	w.shows("Consul token", "Log in")
	w.accessible("login")
	login := func(token string) {
		t.Helper()
		w.run(chromedp.SetValue(chromedp.CSS("#token"), token), chromedp.Click(chromedp.CSS("form.login button")))
	}
	login("11111111-2222-3333-4444-555555555555")
	w.shows("Consul does not know this token", "Log in")
	login(s.NewToken(`key_prefix "jorc/other/" { policy = "read" }`))
	w.shows("the token needs ", "Log in")
	w.lacks(s.Node)
	w.accessible("a token that may read little")

	reader := s.NewToken(`key_prefix "" { policy = "read" } node_prefix "" { policy = "read" } service_prefix "" { policy = "read" }`)
	login(reader)
	w.shows("Needs attention", "Log out")
	w.open(base + "/hosts")
	w.shows(s.Node)
	w.live()
	if cookies := eval[string](w, `document.cookie`); cookies != "" {
		t.Errorf("scripts can read the cookie %q", cookies)
	}
	for _, path := range []string{"/leaders?values=1", "/hosts?columns=Params"} {
		w.open(base + path)
		w.shows("jorc --cluster=" + clusterName)
		if text := w.text(); strings.Contains(text, "welcome") || strings.Contains(text, reader) {
			t.Errorf("%s shows a value or the token: %s", path, text)
		}
	}

	// The agent starts again and does not know the session.
	w.open(base + "/hosts")
	w.live()
	h.stop()
	w.shows("The connection to jorc is lost")
	h.agent("web", more)
	w.shows("You are no longer logged in")
	w.open(base + "/hosts")
	w.shows("the session has ended", "Log in")
	login(reader)
	w.shows("Needs attention", "Log out")
	w.run(chromedp.Click(chromedp.CSS("form.logout button")))
	w.shows("Log in")
	w.clean("status of 401", "status of 403", "ERR_")
}

// TestCycle: members that require each other are red in the drawing, which leads to
// hosts and services.
func TestCycle(t *testing.T) {
	s := consultest.Start(t)
	h := newHost(t, s, "")
	h.jorc("cluster", "init", clusterName)
	h.jorc("cluster", "join", "--node", "n1", "--provides", "alpha", "--requires", "beta")
	h.jorc("cluster", "join", "--node", "n2", "--provides", "beta", "--requires", "alpha")
	h.jorc("cluster", "join", "--node", "n3", "--requires", "alpha", "--requires", "elsewhere")
	w := newTab(t, newBrowser(t))
	base := w.enter(h.ui())
	w.shows("members wait for each other without end")
	w.open(base + "/dependencies")
	w.shows("These members wait for each other without end", "n1", "beta")
	w.accessible("cycle")
	const colours = `[...document.querySelectorAll("main svg path[marker-end]")].map(p => {
		const [red, green, blue] = getComputedStyle(p).stroke.match(/\d+/g).map(Number);
		return red > 2 * green && red > 2 * blue ? "red" : "other";
	}).sort().join(" ")`
	if got := eval[string](w, colours); got != "other other red red" {
		t.Errorf("the arrows are %s", got)
	}
	for link, title := range map[string]string{`a[*|href^="/host?name=n1"]`: "n1", `a[*|href^="/service?name=elsewhere"]`: "elsewhere"} {
		w.open(base + "/dependencies")
		w.run(chromedp.Click(chromedp.CSS("main svg " + link)))
		eventually(t, "the page of "+title, func() error {
			if h := eval[string](w, `document.querySelector("h1") ? document.querySelector("h1").innerText : ""`); h != title {
				return fmt.Errorf("the page is %q", h)
			}
			return nil
		})
	}
	w.clean("status of 404")
}

// TestClusterSwitch: the choice of the cluster leads to another cluster, and links stay
// there.
func TestClusterSwitch(t *testing.T) {
	s := consultest.Start(t)
	h := newHost(t, s, "")
	h.jorc("cluster", "init", clusterName)
	h.jorc("cluster", "join", "--node", "n1")
	h.jorc("--cluster=second", "cluster", "init", "second")
	h.jorc("--cluster=second", "cluster", "join", "--node", "n2")
	w := newTab(t, newBrowser(t))
	base := w.enter(h.ui())
	w.open(base + "/hosts")
	w.shows("n1")
	w.accessible("cluster switch")
	eval[chromedp.Void](w, `(c => { c.value = "second"; c.dispatchEvent(new Event("change")); })(document.getElementById("cluster"))`)
	eventually(t, "the other cluster", func() error {
		if got := eval[string](w, `document.body ? document.body.dataset.cluster : ""`); got != "second" {
			return fmt.Errorf("the page is about %q", got)
		}
		return nil
	})
	w.shows("jorc --cluster=second cluster attention")
	w.live()
	w.run(chromedp.Click("//nav[@id='menu']//a[normalize-space(text())='Hosts']"))
	w.shows("n2", "jorc --cluster=second cluster members")
	w.lacks("n1")
	h.jorc("--cluster=second", "cluster", "join", "--node", "n3")
	w.shows("n3")
	w.clean()
}

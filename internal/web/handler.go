package web

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/metrics"
	"github.com/jorc/jorc/internal/text"
)

const (
	// answerTimeout bounds how long the source may take. After that the answer is
	// 503, also of /healthz: an agent that cannot report its status does not work.
	answerTimeout = 10 * time.Second
	// maxAnswers bounds how many requests are handled at the same time.
	maxAnswers = 8
)

// endpoints is listed in the answer to an unknown path.
const endpoints = "there is / /v1/status /healthz /metrics"

// handler returns the server's handler; local: only this host can reach the server.
func (s *Server) handler(local bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/status", s.serveStatus)
	mux.HandleFunc("/healthz", s.serveHealth)
	mux.Handle("/metrics", metrics.Handler(s.collectors()...))
	mux.Handle("/{$}", s.pageHandler())
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not found: "+endpoints, http.StatusNotFound)
	})
	// Handlers that time out count towards maxAnswers until they return, so that a
	// stuck source blocks a bounded number of them.
	h := http.TimeoutHandler(Limit(maxAnswers, mux), s.within, "the agent does not report its status\n")
	if local {
		h = LocalOnly(h)
	}
	if s.o.FleetLock == nil || !local {
		return readOnly(h)
	}
	mux = http.NewServeMux()
	mux.Handle("/fleetlock/", LocalOnly(s.o.FleetLock))
	mux.Handle("/", readOnly(h))
	return mux
}

// readOnly refuses all methods except GET and HEAD, and forbids browsers to cache,
// sniff or frame the answers.
func readOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "the status API only reads: use GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Limit handles n requests at the same time; the others wait.
func Limit(n int, next http.Handler) http.Handler {
	slots := make(chan struct{}, n)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
			http.Error(w, "too many requests at a time", http.StatusServiceUnavailable)
		}
	})
}

// status returns the completed status of the source.
func (s *Server) status() Status { return s.o.Source.Status().completed() }

func (s *Server) serveStatus(w http.ResponseWriter, _ *http.Request) {
	body, err := json.MarshalIndent(s.status(), "", "  ")
	if err != nil {
		http.Error(w, fmt.Sprintf("status: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	s.write(w, append(body, '\n'))
}

// serveHealth serves the liveness probe (/healthz) and the readiness probe
// (/healthz?ready).
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	status := s.status()
	var reasons []string
	if status.Unhealthy != "" {
		reasons = append(reasons, status.Unhealthy)
	}
	if r.URL.Query().Has("ready") {
		reasons = append(reasons, status.NotReady...)
	}
	if len(reasons) > 0 {
		http.Error(w, strings.Join(reasons, "\n"), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	s.write(w, []byte("ok\n"))
}

// write sends the body. A client that has disconnected is only logged.
func (s *Server) write(w http.ResponseWriter, body []byte) {
	if _, err := w.Write(body); err != nil {
		s.o.Log.Debug("the client of the status API left", "error", err)
	}
}

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
)

// maxRows bounds the templates on the page; failed, stale and waiting ones come first.
const maxRows = 500

// page is what page.html shows.
type page struct {
	Status
	Style template.CSS
	Left  int // templates that are not shown
}

func newPage(s Status) page {
	p := page{Status: s, Style: template.CSS(pageCSS)}
	slices.SortStableFunc(p.Templates, func(a, b Template) int { return trouble(b.State) - trouble(a.State) })
	if p.Left = len(p.Templates) - maxRows; p.Left > 0 {
		p.Templates = p.Templates[:maxRows]
	}
	p.Left = max(p.Left, 0)
	return p
}

func trouble(state string) int {
	return slices.Index([]string{TemplateRendered, TemplateHeld, TemplateWaiting, TemplateStale, TemplateFailed}, state)
}

// pageHandler serves the page for people. The page loads no other resource, and its
// content security policy forbids browsers to load or run one, even if the output
// of a check contains markup.
func (s *Server) pageHandler() http.Handler {
	functions := template.FuncMap{"age": text.Age, "class": class}
	t := template.Must(template.New("page").Funcs(functions).Parse(pageHTML))
	hash := sha256.Sum256([]byte(pageCSS))
	policy := fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		base64.StdEncoding.EncodeToString(hash[:]))
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var body bytes.Buffer
		if err := t.Execute(&body, newPage(s.status())); err != nil {
			http.Error(w, fmt.Sprintf("page: %v", err), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy)
		s.write(w, body.Bytes())
	})
}

// class returns the CSS class of a state.
func class(state string) string {
	switch state {
	case CheckPassing, TemplateRendered, ProcessRunning, "converged", "idle":
		return "good"
	case CheckCritical, TemplateFailed:
		return "bad"
	}
	return "warn"
}

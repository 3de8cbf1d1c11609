package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	// answerTimeout bounds how long the source may take; then the answer is 503,
	// of /healthz too: an agent that cannot say how it stands does not work.
	answerTimeout = 10 * time.Second
	// maxAnswers bounds how many answers are made at a time.
	maxAnswers = 8
)

// endpoints is what the answer to an unknown path names.
const endpoints = "there is / /v1/status /healthz /metrics"

// handler returns the whole of the server; local: only this host reaches it.
func (s *Server) handler(local bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/status", s.serveStatus)
	mux.HandleFunc("/healthz", s.serveHealth)
	mux.Handle("/metrics", s.metricsHandler())
	mux.Handle("/{$}", s.pageHandler())
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not found: "+endpoints, http.StatusNotFound)
	})
	// Answers that time out keep their place until they end: however long the
	// source is stuck, what waits for it is bounded.
	h := http.TimeoutHandler(limited(mux), s.within, "the agent does not say how it stands\n")
	if local {
		h = localOnly(h)
	}
	return readOnly(h)
}

// readOnly refuses all methods that are not for reading, and tells browsers to
// neither keep, guess at, nor frame the answers.
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

// limited lets maxAnswers requests in at a time; the others wait for their turn.
func limited(next http.Handler) http.Handler {
	slots := make(chan struct{}, maxAnswers)
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

// status asks the source.
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

// serveHealth answers for those who would restart jorc (/healthz) and those
// who wait for it (/healthz?ready).
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

// write sends the body; that the client has left concerns nobody else.
func (s *Server) write(w http.ResponseWriter, body []byte) {
	if _, err := w.Write(body); err != nil {
		s.o.Log.Debug("the client of the status API left", "error", err)
	}
}

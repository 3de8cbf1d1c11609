package web

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"time"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
)

// maxRows bounds the templates on the page; failed and waiting ones come first.
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
	return slices.Index([]string{TemplateRendered, TemplateHeld, TemplateWaiting, TemplateFailed}, state)
}

// pageHandler serves the page for people. The page loads no other resource, and its
// content security policy forbids browsers to load or run one, even if the output
// of a check contains markup.
func (s *Server) pageHandler() http.Handler {
	functions := template.FuncMap{"age": age, "class": class}
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
	case CheckPassing, TemplateRendered, "converged", "idle":
		return "good"
	case CheckCritical, TemplateFailed:
		return "bad"
	}
	return "warn"
}

// age formats the time since t in its two largest units; empty if t is zero.
func age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := max(time.Since(t), 0)
	days := int(d.Hours()) / 24
	switch {
	case days > 0:
		return fmt.Sprintf("%dd %dh", days, int(d.Hours())%24)
	case d >= time.Hour:
		return fmt.Sprintf("%dh %dm", int(d.Hours()), int(d.Minutes())%60)
	case d >= time.Minute:
		return fmt.Sprintf("%dm %ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%ds", int(d.Seconds()))
}

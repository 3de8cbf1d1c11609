package web

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestPage holds the page as people see it. Its times lie far enough back for
// their ages to stand still.
func TestPage(t *testing.T) {
	t.Parallel()
	status := example()
	ago := time.Now().Add(-50*time.Hour - 30*time.Minute)
	status.Started, status.Consul.LastAnswer, status.Consul.UnreachableSince, status.Reload.At = ago, ago, ago, ago
	for i := range status.Services {
		status.Services[i].Since = ago
		for j := range status.Services[i].Checks {
			status.Services[i].Checks[j].Since = ago
		}
	}
	for i := range status.Processes {
		status.Processes[i].Since = ago
	}
	status.Schedules[0].LastRun = ago
	status.Templates[0].Changed, status.Convergence.Since = ago, ago
	status.Orchestrators[0].Since, status.Orchestrators[0].Last = ago, ago
	s := start(t, &board{status: status})
	got := s.get("/")
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("got %d %s", got.status, got.header.Get("Content-Type"))
	}
	golden(t, "page.html", got.body)
}

// TestPageEscapes: nothing that comes from Consul, checks or templates becomes
// part of the page.
func TestPageEscapes(t *testing.T) {
	t.Parallel()
	const attack = `"'></style></pre><script>alert(1)</script><img src=x onerror=alert(1)>{{.}}`
	status := Status{
		Node: attack, Cluster: attack, Version: attack, Unhealthy: attack, Held: attack, NotReady: []string{attack},
		Consul: Consul{Address: attack},
		Services: []Service{{
			ID: attack, Name: attack + "2", Error: attack,
			Checks: []Check{{Name: attack, Kind: attack, State: attack, Output: attack, Error: attack}},
		}},
		Templates: []Template{{
			Name: attack, Destination: attack, Together: attack, State: attack, Error: attack,
			Waiting: []string{attack}, Held: []string{attack},
		}},
		Reload: Reload{At: at(9, 0), Error: attack},
	}
	got := start(t, &board{status: status}).get("/").body
	for _, bad := range []string{"<script", "<img", "{{"} {
		if strings.Contains(strings.ReplaceAll(got, "{{.}}", ""), bad) {
			t.Errorf("the page holds %s:\n%s", bad, got)
		}
	}
	if n := strings.Count(got, "&lt;script&gt;"); n < 15 {
		t.Errorf("%d escaped texts; want all of them shown", n)
	}
	if n := strings.Count(got, "</style>"); n != 1 {
		t.Errorf("%d ends of style; want 1", n)
	}
}

// TestPageStandsAlone: no script, nothing loaded, and a policy that fits.
func TestPageStandsAlone(t *testing.T) {
	t.Parallel()
	got := start(t, &board{status: example()}).get("/")
	if bad := regexp.MustCompile(`(?i)<script|<link|<img|\bsrc=|@import|url\(|https?://|\bon[a-z]+=|\bstyle=`).FindString(got.body); bad != "" {
		t.Errorf("the page holds %q", bad)
	}
	_, rest, _ := strings.Cut(got.body, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	hash := sha256.Sum256([]byte(style))
	want := fmt.Sprintf("style-src 'sha256-%s'", base64.StdEncoding.EncodeToString(hash[:]))
	if policy := got.header.Get("Content-Security-Policy"); !strings.Contains(policy, want) || !strings.HasPrefix(policy, "default-src 'none';") {
		t.Errorf("the policy is %q; want it to have %s", policy, want)
	}
}

// TestPageOfMany: the page is bounded, and trouble comes first.
func TestPageOfMany(t *testing.T) {
	t.Parallel()
	status := settled()
	for i := range maxRows {
		status.Templates = append(status.Templates, Template{Name: fmt.Sprint("t", i), State: TemplateRendered})
	}
	status.Templates = append(status.Templates, Template{Name: "broken", State: TemplateFailed}, Template{Name: "late", State: TemplateWaiting})
	got := newPage(status.completed())
	if len(got.Templates) != maxRows || got.Left != 4 || got.Templates[0].Name != "broken" || got.Templates[1].Name != "late" {
		t.Errorf("%d rows, %d left, first %q, %q", len(got.Templates), got.Left, got.Templates[0].Name, got.Templates[1].Name)
	}
}

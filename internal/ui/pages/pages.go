// Package pages shows a fleet as HTML: rendered on the server, readable without
// JavaScript, kept current by a small script where there is some.
package pages

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/ui"
)

// Options are what pages need. All but Log must be set.
type Options struct {
	// Fleet returns a cluster as the viewer of a request may see it; an empty name is
	// the default cluster.
	Fleet func(r *http.Request, name string) (*ui.Fleet, error)
	// Clusters returns the clusters that the viewer may choose from.
	Clusters func(r *http.Request) (ui.Clusters, error)
	// LogsOut reports whether the viewer of a request has a login to end.
	LogsOut func(r *http.Request) bool
	Log     hclog.Logger
}

// Pages is the handler of all pages.
type Pages struct {
	o      Options
	mux    *http.ServeMux
	pages  map[string]*template.Template
	assets map[string]asset
}

// asset is a file that pages load.
type asset struct {
	path, kind string
	data       []byte
}

var (
	//go:embed templates
	templates embed.FS
	//go:embed assets
	assets embed.FS
)

// New does no I/O.
func New(o Options) *Pages {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	p := &Pages{o: o, mux: http.NewServeMux(), pages: map[string]*template.Template{}, assets: map[string]asset{}}
	p.addAssets()
	p.parse()
	for _, one := range p.all() {
		p.mux.Handle("GET "+one.path, p.page(one))
	}
	for _, one := range moved {
		p.mux.HandleFunc("GET "+one.path, redirect(one.kind, one.name))
	}
	p.mux.HandleFunc("GET "+assetPath+"{hash}/{name}", p.serveAsset)
	p.mux.HandleFunc("GET "+assetPath, func(w http.ResponseWriter, _ *http.Request) { // without a viewer
		http.Error(w, "not found", http.StatusNotFound)
	})
	p.mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, r *http.Request) { p.writeAsset(w, "icon.svg") })
	p.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p.fail(w, r, http.StatusNotFound, fmt.Sprintf("%s does not exist", r.URL.Path))
	})
	return p
}

const assetPath = "/assets/"

// addAssets gives each asset a path with its hash, so that browsers may keep it.
func (p *Pages) addAssets() {
	for _, name := range p.names(assets, "assets") {
		data, err := assets.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		hash := sha256.Sum256(data)
		p.assets[name] = asset{assetPath + hex.EncodeToString(hash[:6]) + "/" + name, mime.TypeByExtension(path.Ext(name)), data}
	}
}

func (p *Pages) names(files fs.FS, dir string) (names []string) {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		panic(err) // it is embedded
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// parse reads the templates: each page with the layout and the parts.
func (p *Pages) parse() {
	functions := template.FuncMap{"asset": func(name string) string { return p.assets[name].path }}
	for name, f := range formats {
		functions[name] = f
	}
	shared := []string{"layout.html", "parts.html"}
	parts := []string{"templates/layout.html", "templates/parts.html"}
	for _, name := range p.names(templates, "templates/changes") {
		parts = append(parts, "templates/changes/"+name)
	}
	for _, name := range p.names(templates, "templates") {
		if slices.Contains(shared, name) || path.Ext(name) == "" {
			continue
		}
		t := template.New("layout.html").Funcs(functions)
		p.pages[name] = template.Must(t.ParseFS(templates, append(parts, "templates/"+name)...))
	}
}

// policy lets a page load the files of this server and nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// setPolicy sets the headers that keep a page from loading or running anything that
// is not a file of this server.
func setPolicy(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}

// ServeHTTP implements http.Handler.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setPolicy(w.Header())
	p.mux.ServeHTTP(w, r)
}

// serveAsset serves the files that pages load. They hold nothing of a cluster: a
// server may let viewers have them before they logged in.
func (p *Pages) serveAsset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if p.assets[name].path != r.URL.Path {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	p.writeAsset(w, name)
}

func (p *Pages) writeAsset(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", p.assets[name].kind)
	p.write(w, p.assets[name].data)
}

// write sends the body. A client that has disconnected is only logged.
func (p *Pages) write(w http.ResponseWriter, body []byte) {
	if _, err := w.Write(body); err != nil {
		p.o.Log.Debug("the client of a page left", "error", err)
	}
}

// page is a page with its place in the menu.
type page struct {
	path, file, title, menu string
	// load returns what the page's template shows, and the answer's beginning.
	load func(q query) (any, ui.About, error)
}

// query is one request for a page.
type query struct {
	ctx   context.Context
	form  url.Values
	fleet *ui.Fleet
	now   *ui.Snapshot
}

func (q query) get(name string) string { return q.form.Get(name) }

// shown is what the layout shows.
type shown struct {
	ui.About
	Title   string
	Menu    []entry
	Stream  string // path of the cluster's event stream; empty: without one
	LogsOut bool
	Login   bool // a form for a token is of use
	// Clusters to choose from; an empty list offers no choice.
	Clusters []fleet.Summary
	Default  bool // it is the default cluster
	Error    string
	Data     any
}

// streamOf is the path of a cluster's event stream.
func streamOf(name string) string { return "/v1/fleet/clusters/" + url.PathEscape(name) + "/stream" }

// entry is one entry of the menu.
type entry struct {
	Title, Link string
	Current     bool
	Count       int // of problems; 0: not shown
}

// refreshHeader marks a request of the script, which has the list of clusters.
const refreshHeader = "Jorc-Refresh"

func (p *Pages) page(one page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		form := r.URL.Query()
		fleet, err := p.o.Fleet(r, form.Get("cluster"))
		if err != nil {
			p.failWith(w, r, err)
			return
		}
		q := query{ctx: r.Context(), form: form, fleet: fleet}
		if q.now, err = fleet.Snapshot(r.Context()); err != nil {
			p.failWith(w, r, err)
			return
		}
		s := shown{Title: one.title, Stream: streamOf(fleet.Name()), LogsOut: p.o.LogsOut(r)}
		status := http.StatusOK
		if s.Data, s.About, err = one.load(q); err != nil {
			s.Error = err.Error() // Data is what can be shown all the same
			if s.About.Cluster == "" {
				s.About = q.now.Overview().About
			}
			status = statusOf(err)
		}
		if r.Header.Get(refreshHeader) == "" {
			s.Clusters, s.Default = p.choice(r, q.fleet.Name())
		}
		s.Menu = p.menu(one.menu, link(form.Get("cluster")), q.now)
		p.render(w, status, one.file, s)
	})
}

// choice returns the clusters that a viewer may switch to.
func (p *Pages) choice(r *http.Request, name string) ([]fleet.Summary, bool) {
	all, err := p.o.Clusters(r)
	if err != nil { // the page is of use without them
		p.o.Log.Debug("clusters cannot be listed", "error", err)
	}
	return all.Clusters, name == all.Default
}

// menu returns the entries of the menu; in adds the cluster to a link.
func (p *Pages) menu(current string, in linker, s *ui.Snapshot) (menu []entry) {
	for _, one := range p.all() {
		if one.menu == "" || one.menu != one.title {
			continue
		}
		e := entry{Title: one.title, Link: in.to(strings.TrimSuffix(one.path, "{$}")), Current: one.menu == current}
		if one.path == startPath && s != nil {
			e.Count = s.Attention().Count
		}
		menu = append(menu, e)
	}
	return menu
}

// linker makes links that keep the cluster.
type linker struct{ cluster string }

func link(cluster string) linker { return linker{cluster} }

// to returns a link to a page; pairs are names and values of its query, empty values
// are left out.
func (l linker) to(path string, pairs ...string) string {
	v := url.Values{}
	if l.cluster != "" {
		v.Set("cluster", l.cluster)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Add(pairs[i], pairs[i+1])
		}
	}
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

// render answers with a page. Characters that steer terminals, hide, or turn text
// around are replaced by visible ones wherever they came from.
func (p *Pages) render(w http.ResponseWriter, status int, file string, s shown) {
	var body bytes.Buffer
	if err := p.pages[file].Execute(&body, s); err != nil {
		p.o.Log.Error("a page cannot be made", "page", file, "error", err)
		http.Error(w, "the page cannot be made: the log of the server says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	p.write(w, visible(body.Bytes()))
}

// Refuse answers a browser that sees nothing; login offers a form for a token.
func (p *Pages) Refuse(w http.ResponseWriter, status int, why string, login bool) {
	setPolicy(w.Header())
	title := "Not logged in"
	if login {
		title = "Log in"
	}
	p.render(w, status, "error.html", shown{Title: title, Error: why, Login: login})
}

// fail answers with a page that says what is wrong.
func (p *Pages) fail(w http.ResponseWriter, r *http.Request, status int, why string) {
	s := shown{Title: http.StatusText(status), LogsOut: p.o.LogsOut(r), Error: why}
	s.Cluster = r.URL.Query().Get("cluster")
	s.Menu = p.menu("", link(s.Cluster), nil)
	p.render(w, status, "error.html", s)
}

func (p *Pages) failWith(w http.ResponseWriter, r *http.Request, err error) {
	p.fail(w, r, statusOf(err), err.Error())
}

// statusOf is the status of an answer that failed.
func statusOf(err error) int {
	switch {
	case errors.Is(err, ui.ErrQuery), errors.Is(err, runs.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, cluster.ErrNoHost), errors.Is(err, cluster.ErrNoCluster), errors.Is(err, ui.ErrNoChange), errors.Is(err, ui.ErrNoService):
		return http.StatusNotFound
	case errors.Is(err, consul.ErrDenied):
		return http.StatusForbidden
	case errors.Is(err, ui.ErrTooMany):
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

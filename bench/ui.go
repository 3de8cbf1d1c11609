package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleet"
)

// uiRun bounds a run of what -ui measures.
const uiRun = 8 * time.Minute

// uiSize is how much of the dashboard is measured.
type uiSize struct {
	hosts   int
	starts  int // of the server
	pages   int // requests of each page
	changes int // with one stream, and with all
	streams int
	events  int // on the screen, of each kind
	tabs    int
	idle    time.Duration
}

func fullUI() uiSize {
	return uiSize{hosts: 5000, starts: 5, pages: 60, changes: 10, streams: 50, events: 20, tabs: 10, idle: 10 * time.Second}
}

func quickUI() uiSize {
	return uiSize{hosts: 200, starts: 1, pages: 5, changes: 2, streams: 5, events: 2, tabs: 3, idle: time.Second}
}

// runUI measures the dashboard and writes the report to stdout and, if all went well, to
// the file out.
func (b *bench) runUI(ctx context.Context, quick bool, stdout io.Writer, out string) error {
	defer os.RemoveAll(b.dir)
	ctx, cancel := context.WithTimeoutCause(ctx, uiRun, fmt.Errorf("not done within %s", uiRun))
	defer cancel()
	size := fullUI()
	if quick {
		size = quickUI()
	}
	var err error
	if b.programs.chromium, err = exec.LookPath("chromium"); err != nil {
		return fmt.Errorf("%w: apt-get install chromium", err)
	}
	r, err := b.measureUI(ctx, size)
	if err != nil {
		return err
	}
	r.Quick = quick
	text := r.markdown()
	if _, err := io.WriteString(stdout, text); err != nil || out == "" {
		return err
	}
	return os.WriteFile(out, []byte(text), 0o644)
}

// measureUI stores a fleet and shows it.
func (b *bench) measureUI(ctx context.Context, size uiSize) (r uiReport, err error) {
	r = uiReport{Machine: describe(ctx, b.programs, b.dir), size: size}
	begin := time.Now()
	note := func(what string) { fmt.Fprintf(b.log, "%6.1fs  %s\n", time.Since(begin).Seconds(), what) }
	note(fmt.Sprintf("a fleet of %d stored hosts", size.hosts))
	f, err := b.newFleet(ctx, size.hosts)
	if err != nil {
		return r, err
	}
	defer f.close()
	if err := f.store(ctx); err != nil {
		return r, err
	}
	asked, err := newCounter("http://" + f.consul.http)
	if err != nil {
		return r, err
	}
	defer asked.Close()
	note("starts of the server")
	for range size.starts {
		s, err := b.startUI(ctx, asked.URL)
		if err != nil {
			return r, err
		}
		took, err := s.get(ctx, "/")
		s.close()
		if err != nil {
			return r, err
		}
		r.first.addMillis(took)
	}
	s, err := b.startUI(ctx, asked.URL)
	if err != nil {
		return r, err
	}
	defer s.close()
	note("pages and filters")
	if err := r.measurePages(ctx, s); err != nil {
		return r, err
	}
	note("streams")
	if err := r.measureStreams(ctx, s, f, asked); err != nil {
		return r, err
	}
	note("the screen")
	o, err := b.orchestrate(ctx, f.consul, f.consul.http, time.Second)
	if err != nil {
		return r, err
	}
	defer o.close()
	if err := r.measureScreen(ctx, b, f); err != nil {
		return r, err
	}
	r.Took = time.Since(begin)
	return r, nil
}

// served is a running `jorc ui` and a viewer that it let in.
type served struct {
	proc   *process
	base   string // its address
	enter  string // the same with the key
	client *http.Client
}

var printedAddress = regexp.MustCompile(`http://\S+key=\S+`)

// startUI starts the server with Consul at an address, and lets a viewer in.
func (b *bench) startUI(ctx context.Context, address string) (*served, error) {
	s, err := b.startUIForBrowser(ctx, address)
	if err != nil {
		return nil, err
	}
	if _, err := s.request(ctx, s.enter); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// startUIForBrowser leaves the key to a browser.
func (b *bench) startUIForBrowser(ctx context.Context, address string) (*served, error) {
	dir, err := b.place("ui")
	if err != nil {
		return nil, err
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	environ := fleetEnviron(address)
	s := &served{client: &http.Client{Jar: jar, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	if s.proc, err = startWith(dir, "jorc", []string{b.programs.jorc, "ui"}, environ); err != nil {
		return nil, err
	}
	for s.enter == "" {
		s.enter = string(printedAddress.Find(s.proc.tail()))
		select {
		case <-s.proc.done:
			return nil, s.proc.died()
		case <-ctx.Done():
			s.close()
			return nil, context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
	s.base, _, _ = strings.Cut(s.enter, "/?")
	return s, nil
}

func (s *served) close() {
	s.client.CloseIdleConnections()
	s.proc.kill()
}

// get returns how long a page, or an answer of the API, took to the last byte.
func (s *served) get(ctx context.Context, path string) (time.Duration, error) {
	return s.request(ctx, s.base+path)
}

func (s *served) request(ctx context.Context, address string) (time.Duration, error) {
	begin := time.Now()
	body, err := s.stream(ctx, address)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	if _, err := io.Copy(io.Discard, body); err != nil {
		return 0, err
	}
	return time.Since(begin), nil
}

// stream opens an answer.
func (s *served) stream(ctx context.Context, address string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close() // the status says enough
		return nil, fmt.Errorf("%s: %s", req.URL.Path, resp.Status)
	}
	return resp.Body, nil
}

// counter passes requests on and counts them.
type counter struct {
	*httptest.Server
	asked   atomic.Int64
	streams atomic.Int64 // open streams of the dashboard
}

func newCounter(to string) (*counter, error) {
	target, err := url.Parse(to)
	if err != nil {
		return nil, err
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1 // streams
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 100}
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) } // mostly the client left
	c := &counter{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.asked.Add(1)
		if strings.HasSuffix(r.URL.Path, "/stream") {
			c.streams.Add(1)
			defer c.streams.Add(-1)
		}
		proxy.ServeHTTP(w, r)
	}))
	return c, nil
}

const (
	uiAPI    = "/v1/fleet/clusters/" + fleetCluster
	uiFilter = "?filter=Zone+%3D%3D+%22rack-7%22+and+Status.config+%3D%3D+%22success%22"
)

// measurePages asks for pages one after the other.
func (r *uiReport) measurePages(ctx context.Context, s *served) error {
	if _, err := s.get(ctx, "/"); err != nil { // the server reads the fleet
		return err
	}
	for _, p := range []struct {
		path string
		to   *samples
	}{{"/", &r.start}, {"/hosts", &r.hosts}, {"/hosts?sort=-Zone&limit=200", &r.sorted}, {"/hosts" + uiFilter, &r.filterPage}, {uiAPI + "/hosts" + uiFilter, &r.filterAPI}} {
		for range r.size.pages {
			took, err := s.get(ctx, p.path)
			if err != nil {
				return err
			}
			p.to.addMillis(took)
		}
	}
	return nil
}

// measureStreams compares one stream with many.
func (r *uiReport) measureStreams(ctx context.Context, s *served, f *simulated, asked *counter) error {
	reading, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer stop()
	var received []*atomic.Int64 // changes, of each stream
	follow := func() error {
		body, err := s.stream(reading, s.base+uiAPI+"/stream")
		if err != nil {
			return err
		}
		changes := &atomic.Int64{}
		received = append(received, changes)
		following.Go(func() {
			defer body.Close()
			lines := bufio.NewScanner(body)
			for lines.Scan() {
				if lines.Text() == "event: change" {
					changes.Add(1)
				}
			}
		})
		return nil
	}
	if err := follow(); err != nil {
		return err
	}
	c := fleet.New(f.client, fleetPrefix, fleetCluster)
	window := func(salt string) (perChange, idle float64, err error) {
		sleep(ctx, time.Second) // for what a stream begins with
		before := asked.asked.Load()
		for i := range r.size.changes {
			seen := make([]int64, len(received))
			for j, changes := range received {
				seen[j] = changes.Load()
			}
			begin := time.Now()
			if _, err := c.SetState(ctx, nodeName(i), "measured", cluster.CategoryState{State: cluster.StateSuccess, Version: "v1", Detail: salt}); err != nil {
				return 0, 0, err
			}
			for j, changes := range received {
				for changes.Load() == seen[j] {
					if sleep(ctx, time.Millisecond); ctx.Err() != nil {
						return 0, 0, fmt.Errorf("streams: %w", context.Cause(ctx))
					}
				}
			}
			if len(received) == r.size.streams {
				r.reached.addMillis(time.Since(begin))
			}
			sleep(ctx, time.Second)
		}
		perChange = float64(asked.asked.Load()-before) / float64(r.size.changes)
		before = asked.asked.Load()
		sleep(ctx, r.size.idle)
		return perChange, float64(asked.asked.Load() - before), ctx.Err()
	}
	var err error
	if r.oneChange, r.oneIdle, err = window("one"); err != nil {
		return err
	}
	if r.rssBefore, _, err = s.proc.memory(); err != nil {
		return err
	}
	for range r.size.streams - 1 {
		if err := follow(); err != nil {
			return err
		}
	}
	if r.manyChange, r.manyIdle, err = window("many"); err != nil {
		return err
	}
	var peak float64
	if r.rssAfter, peak, err = s.proc.memory(); err != nil {
		return err
	}
	r.rssPeak = peak
	return nil
}

// measureScreen drives a browser.
func (r *uiReport) measureScreen(ctx context.Context, b *bench, f *simulated) error {
	s, err := b.startUIForBrowser(ctx, "http://"+f.consul.http)
	if err != nil {
		return err
	}
	defer s.close()
	front, err := newCounter(s.base)
	if err != nil {
		return err
	}
	defer front.Close()
	in, err := b.startChromium()
	if err != nil {
		return err
	}
	defer in.close()
	t, err := in.open(ctx, strings.Replace(s.enter, s.base, front.URL, 1))
	if err != nil {
		return err
	}
	if err := t.until(ctx, live); err != nil {
		return err
	}
	c := fleet.New(f.client, fleetPrefix, fleetCluster)
	fail := func(i int, detail string) (time.Time, error) {
		begin := time.Now()
		_, err := c.SetState(ctx, nodeName(i), cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateFailed, Version: "v1", Detail: detail})
		return begin, err
	}
	last := r.size.hosts - 1 // the page lists the first failures in order of their names
	for i := range 2 * r.size.events {
		host := last - i
		path, text, to := "/", fmt.Sprintf("measured %d", i), &r.failure
		if i >= r.size.events {
			path, text, to = "/events", nodeName(host)+": config failed", &r.event
		}
		if i%r.size.events == 0 {
			if err := errors.Join(t.visit(ctx, front.URL+path), t.until(ctx, live)); err != nil {
				return err
			}
		}
		sleep(ctx, time.Second+time.Duration(i%7)*100*time.Millisecond) // at different times of all clocks
		if err := t.expect(ctx, text); err != nil {
			return err
		}
		begin, err := fail(host, fmt.Sprintf("measured %d", i))
		if err != nil {
			return err
		}
		took, err := t.seen(ctx, begin)
		if err != nil {
			return fmt.Errorf("%s on %s: %w", text, path, err)
		}
		to.addMillis(took)
	}
	return r.measureTabs(ctx, t, front, func() (time.Time, error) { return fail(0, "in all tabs") })
}

// measureTabs opens more tabs of the browser of t; change is to be seen in all of them.
func (r *uiReport) measureTabs(ctx context.Context, t *tab, front *counter, change func() (time.Time, error)) error {
	if err := t.visit(ctx, front.URL+"/"); err != nil {
		return err
	}
	tabs := []*tab{t}
	for range r.size.tabs - 1 {
		one, err := t.in.open(ctx, front.URL+"/")
		if err != nil {
			return err
		}
		tabs = append(tabs, one)
	}
	for _, one := range tabs {
		if err := errors.Join(one.until(ctx, live), one.expect(ctx, "in all tabs")); err != nil {
			return err
		}
	}
	sleep(ctx, 2*time.Second)
	r.tabStreams = float64(front.streams.Load())
	begin, err := change()
	if err != nil {
		return err
	}
	for _, one := range tabs {
		took, err := one.seen(ctx, begin)
		if err != nil {
			return err
		}
		r.tabs.addMillis(took)
	}
	return nil
}

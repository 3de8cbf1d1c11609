package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/runs"
)

// apiError is the answer to a request that failed.
type apiError struct {
	Error string `json:"error"`
}

// apiRoot is below which the API is; docs/openapi.json describes it.
const apiRoot = "/v1/fleet/clusters"

// statusOf is the HTTP status of an error.
func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrLogin):
		return http.StatusUnauthorized
	case errors.Is(err, ErrQuery), errors.Is(err, runs.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, consul.ErrDenied):
		return http.StatusForbidden
	case errors.Is(err, cluster.ErrNoCluster), errors.Is(err, cluster.ErrNoHost), errors.Is(err, ErrNoChange), errors.Is(err, ErrNoService):
		return http.StatusNotFound
	}
	return http.StatusServiceUnavailable // Consul, or the server's own limits
}

// api is the handler of /v1/fleet/; it ends streams when ctx does.
func (s *Server) api(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	answers := make(chan struct{}, maxAnswers)
	get := func(path string, answer func(*http.Request, *Fleet) (any, error)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
			defer cancel()
			select {
			case answers <- struct{}{}:
				defer func() { <-answers }()
			case <-ctx.Done():
				s.fail(w, ErrTooMany)
				return
			}
			fleet, err := ViewerOf(ctx).Fleet(ctx, r.PathValue("cluster"))
			if err != nil {
				s.fail(w, err)
				return
			}
			v, err := answer(r.WithContext(ctx), fleet)
			if err != nil {
				s.fail(w, err)
				return
			}
			s.reply(w, http.StatusOK, v)
		})
	}
	// view answers from the snapshot alone.
	view := func(path string, answer func(*Snapshot, query) (any, error)) {
		get(path, func(r *http.Request, f *Fleet) (any, error) {
			q, err := parseQuery(r)
			if err != nil {
				return nil, err
			}
			snapshot, err := f.Snapshot(r.Context())
			if err != nil {
				return nil, err
			}
			return answer(snapshot, q)
		})
	}
	mux.HandleFunc("GET "+apiRoot, func(w http.ResponseWriter, r *http.Request) {
		all, err := ViewerOf(r.Context()).Clusters(r.Context())
		if err != nil {
			s.fail(w, err)
			return
		}
		s.reply(w, http.StatusOK, all)
	})
	const one = apiRoot + "/{cluster}"
	view(one, func(s *Snapshot, _ query) (any, error) { return s.Overview(), nil })
	view(one+"/attention", func(s *Snapshot, _ query) (any, error) { return s.Attention(), nil })
	view(one+"/changes", func(s *Snapshot, q query) (any, error) {
		return s.Changes(ChangesQuery{Kind: q.Get("kind"), State: q.Get("state"), Page: q.page})
	})
	get(one+"/changes/{change}", func(r *http.Request, f *Fleet) (any, error) {
		q, err := parseQuery(r)
		if err != nil {
			return nil, err
		}
		return f.Change(r.Context(), r.PathValue("change"), ChangeQuery{State: q.Get("state"), Page: q.page})
	})
	view(one+"/hosts", func(s *Snapshot, q query) (any, error) { return s.Hosts(q.hosts()) })
	get(one+"/hosts/{host}", func(r *http.Request, f *Fleet) (any, error) { return f.Host(r.Context(), r.PathValue("host")) })
	view(one+"/targets", func(s *Snapshot, q query) (any, error) { return s.Targets(q.hosts(), q.port) })
	view(one+"/events", func(s *Snapshot, q query) (any, error) { return s.Events(q.events()), nil })
	view(one+"/services", func(s *Snapshot, q query) (any, error) { return s.Services(q.page), nil })
	get(one+"/services/{service}", func(r *http.Request, f *Fleet) (any, error) {
		snapshot, err := f.Snapshot(r.Context())
		if err != nil {
			return nil, err
		}
		return snapshot.Service(r.PathValue("service"))
	})
	view(one+"/dependencies", func(s *Snapshot, _ query) (any, error) { return s.Dependencies(), nil })
	view(one+"/slots", func(s *Snapshot, _ query) (any, error) { return s.Slots(), nil })
	get(one+"/audit", func(r *http.Request, f *Fleet) (any, error) {
		q, err := parseQuery(r)
		if err != nil {
			return nil, err
		}
		return f.Audit(r.Context(), q.page)
	})
	view(one+"/leaders", func(s *Snapshot, _ query) (any, error) { return s.Leaders(), nil })
	view(one+"/profile", func(s *Snapshot, q query) (any, error) { return s.Profile(q.values), nil })
	get(one+"/profile/history", func(r *http.Request, f *Fleet) (any, error) {
		q, err := parseQuery(r)
		if err != nil {
			return nil, err
		}
		return f.ProfileHistory(r.Context(), q.values, q.page)
	})
	mux.HandleFunc("GET "+one+"/stream", s.streams(ctx))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.reply(w, http.StatusNotFound, apiError{"there is no such path: the API begins at " + apiRoot})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := s.access.viewer(r)
		if err != nil {
			s.fail(w, err)
			return
		}
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), viewerKey{}, v)))
	})
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	s.reply(w, statusOf(err), apiError{err.Error()})
}

func (s *Server) reply(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		s.o.Log.Warn("an answer cannot be written as JSON", "error", err)
		http.Error(w, "the answer cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	s.write(w, append(body, '\n'))
}

// query is the query of a request.
type query struct {
	url.Values
	page          Page
	after, before uint64
	port          int
	values        bool
}

// knownQuery are the names that a query may have.
var knownQuery = []string{"filter", "role", "sort", "columns", "offset", "limit", "state", "kind", "host", "service", "after", "before", "values", "port"}

// parseQuery reads what the API and pages take from the address of a request. It
// returns ErrQuery.
func parseQuery(r *http.Request) (query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return query{}, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	q := query{Values: values}
	for name := range values {
		if !slices.Contains(knownQuery, name) {
			return q, fmt.Errorf("%w: %q is unknown; known are %s", ErrQuery, name, strings.Join(knownQuery, ", "))
		}
	}
	number := func(name string, most uint64) (n uint64) {
		text := values.Get(name)
		if text == "" || err != nil {
			return 0
		}
		if n, err = strconv.ParseUint(text, 10, 64); err != nil || n > most {
			err = fmt.Errorf("%w: %s=%q is not a number up to %d", ErrQuery, name, text, most)
		}
		return n
	}
	q.page = Page{Offset: int(number("offset", 1<<30)), Limit: int(number("limit", MaxLimit))}
	q.after, q.before, q.port = number("after", 1<<62), number("before", 1<<62), int(number("port", 65535))
	if text := values.Get("values"); text != "" && err == nil {
		if q.values, err = strconv.ParseBool(text); err != nil {
			err = fmt.Errorf("%w: values=%q is neither true nor false", ErrQuery, text)
		}
	}
	return q, err
}

// list is a value whose parts are separated by commas, or which stands there several
// times.
func (q query) list(name string) (all []string) {
	for _, value := range q.Values[name] {
		for part := range strings.SplitSeq(value, ",") {
			if part = strings.TrimSpace(part); part != "" {
				all = append(all, part)
			}
		}
	}
	return all
}

func (q query) hosts() HostQuery {
	return HostQuery{Filter: q.Get("filter"), Role: q.Get("role"), Sort: q.Get("sort"), Columns: q.list("columns"), Page: q.page}
}

func (q query) events() EventQuery {
	return EventQuery{
		Kinds: q.list("kind"), Host: q.Get("host"), Service: q.Get("service"), Change: q.Get("change"), After: q.after, Before: q.before, Limit: q.page.Limit,
	}
}

// HostsQuery reads a HostQuery from the address of a request, as the API does. It
// returns ErrQuery.
func HostsQuery(r *http.Request) (HostQuery, error) {
	q, err := parseQuery(r)
	return q.hosts(), err
}

// EventsQuery reads an EventQuery from the address of a request, as the API does. It
// returns ErrQuery.
func EventsQuery(r *http.Request) (EventQuery, error) {
	q, err := parseQuery(r)
	return q.events(), err
}

// PageQuery reads a Page from the address of a request, as the API does. It returns
// ErrQuery.
func PageQuery(r *http.Request) (Page, error) {
	q, err := parseQuery(r)
	return q.page, err
}

// Target is hosts as Prometheus' HTTP service discovery takes them.
type Target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// DefaultPort is that of an agent's status API.
const DefaultPort = 8520

// Targets returns the members that q selects for Prometheus' HTTP service discovery;
// port 0 is DefaultPort. Members without an address are left out. It returns ErrQuery.
func (s *Snapshot) Targets(q HostQuery, port int) ([]Target, error) {
	if port == 0 {
		port = DefaultPort
	}
	matched, _, err := s.selected(q)
	if err != nil {
		return nil, err
	}
	targets := []Target{}
	for i := range matched {
		m := &matched[i]
		if m.Address == "" {
			continue
		}
		targets = append(targets, Target{
			Targets: []string{net.JoinHostPort(m.Address, strconv.Itoa(port))},
			Labels: map[string]string{
				"__meta_jorc_cluster": s.Cluster, "__meta_jorc_node": m.Node, "__meta_jorc_zone": m.Zone, "__meta_jorc_datacenter": m.Datacenter,
				"__meta_jorc_version": m.Version, "__meta_jorc_health": m.Health, "__meta_jorc_agent": m.Agent,
				"__meta_jorc_roles": "," + strings.Join(m.Roles, ",") + ",",
			},
		})
	}
	return targets, nil
}

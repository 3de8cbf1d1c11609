package consultest

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// Refuses reports whether this server refuses key in a request that reads it: that depends
// on its version.
func (s *Server) Refuses(key string) bool {
	s.t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	at := url.URL{Scheme: "http", Host: s.HTTPAddr, Path: "/v1/kv/" + key}
	resp, err := client.Get(at.String())
	if err != nil {
		s.t.Fatalf("consultest: read key %q: %v", key, err)
	}
	resp.Body.Close()
	return resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound
}

// Plant stores a key of any name, also one that this server refuses in other requests: a
// transaction takes any.
func (s *Server) Plant(key, value string) {
	s.t.Helper()
	set := map[string]any{"KV": map[string]any{"Verb": "set", "Key": key, "Value": []byte(value)}}
	s.put("/v1/txn", []any{set}, nil)
}

// strictNames matches the names that Consul 1.21 takes for keys.
var strictNames = regexp.MustCompile(`^[a-zA-Z0-9,_./\-?&=]*$`)

// StrictNames are the faults of a proxy that refuses the names of keys which Consul 1.21
// refuses.
func StrictNames(r *http.Request) Fault {
	key, ok := strings.CutPrefix(r.URL.Path, "/v1/kv/")
	if !ok || strictNames.MatchString(key) {
		return Fault{}
	}
	return refusal()
}

// RefuseName returns the faults of a proxy that refuses the name of one key, which each version
// of Consul takes.
func RefuseName(key string) func(*http.Request) Fault {
	return func(r *http.Request) Fault {
		if r.URL.Path != "/v1/kv/"+key {
			return Fault{}
		}
		return refusal()
	}
}

// refusal is the answer of Consul 1.21 to a name that it refuses.
func refusal() Fault {
	return Fault{Status: http.StatusInternalServerError, Text: `invalid key name, keys should respect the "` + strictNames.String() + `" format`}
}

// Strict returns a proxy to this server that refuses what StrictNames do, unless the server
// itself does.
func (s *Server) Strict() *Proxy {
	s.t.Helper()
	p := s.Proxy()
	if !s.Refuses("v1+b") {
		p.Do(StrictNames)
	}
	return p
}

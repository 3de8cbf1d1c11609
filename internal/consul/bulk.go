package consul

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/hashicorp/consul/api"
)

// request is one request to an endpoint with long answers.
type request struct {
	path          string // not escaped
	recurse       bool   // all keys below the path; none is an empty answer
	tag           string // of instances
	passing       bool   // instances whose checks all pass
	optional      bool   // what does not exist is the zero value
	size          int    // how long the answer probably is
	skipUnchanged bool   // do not read an answer whose index is the query's: return the zero value
}

// bulk sends a request whose answer is long, or of which only a small part is
// needed: pick extracts that part from the text, which it must not keep.
func bulk[T any](c *Client, ask request, pick func(s *scanner) T) func(*api.QueryOptions) (T, *api.QueryMeta, error) {
	return func(o *api.QueryOptions) (v T, meta *api.QueryMeta, err error) {
		params := c.parameters(o)
		if ask.recurse {
			params.Set("recurse", "")
		}
		if ask.tag != "" {
			params.Set("tag", ask.tag)
		}
		if ask.passing {
			params.Set("passing", "1")
		}
		at := url.URL{Path: ask.path, RawQuery: params.Encode()}
		req, err := http.NewRequestWithContext(o.Context(), http.MethodGet, c.base+at.String(), nil)
		if err != nil {
			return v, nil, err
		}
		resp, err := c.http.Do(req)
		if err != nil {
			return v, nil, err
		}
		defer resp.Body.Close()
		meta = metaOf(resp.Header)
		switch {
		case resp.StatusCode == http.StatusNotFound && (ask.recurse || ask.optional):
			return v, meta, nil
		case resp.StatusCode != http.StatusOK:
			return v, nil, refusal(resp)
		}
		if ask.skipUnchanged && meta.LastIndex > 1 && meta.LastIndex == o.WaitIndex {
			_, err = io.Copy(io.Discard, resp.Body)
			return v, meta, err
		}
		text, _ := c.texts.Get().(*bytes.Buffer)
		if text == nil {
			text = &bytes.Buffer{}
		}
		defer func() {
			if text.Cap() <= maxKeptText {
				c.texts.Put(text)
			}
		}()
		text.Reset()
		if ask.size > 0 {
			text.Grow(ask.size + bytes.MinRead)
		}
		if err := readText(text, resp.Body); err != nil {
			return v, nil, err
		}
		s := scanner{text: text.Bytes()}
		v = pick(&s)
		return v, meta, s.end()
	}
}

// readText reads a whole answer. A long one is gathered in pieces: a buffer that doubles
// would hold three times as much.
func readText(text *bytes.Buffer, body io.Reader) error {
	n, err := text.ReadFrom(io.LimitReader(body, longText))
	if err != nil || n < longText {
		return err
	}
	var pieces [][]byte
	size := 0
	for err == nil {
		piece := make([]byte, longText)
		filled := 0
		for filled < len(piece) && err == nil {
			var read int
			read, err = body.Read(piece[filled:])
			filled += read
		}
		pieces = append(pieces, piece[:filled])
		size += filled
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	text.Grow(size)
	for i, piece := range pieces {
		text.Write(piece)
		pieces[i] = nil
	}
	return nil
}

// maxKeptText bounds the memory that is kept for the text of the next answer.
const maxKeptText = 4 << 20

// parameters returns the URL parameters that the API's own calls send.
func (c *Client) parameters(o *api.QueryOptions) url.Values {
	v := url.Values{}
	set := func(name string, values ...string) {
		if value := cmp.Or(values...); value != "" {
			v.Set(name, value)
		}
	}
	set("dc", o.Datacenter, c.scope.Datacenter)
	set("ns", o.Namespace, c.scope.Namespace)
	set("partition", o.Partition, c.scope.Partition)
	set("peer", o.Peer)
	set("sameness-group", o.SamenessGroup)
	set("near", o.Near)
	set("filter", o.Filter)
	if o.RequireConsistent {
		v.Set("consistent", "")
	}
	if o.WaitIndex > 0 {
		v.Set("index", strconv.FormatUint(o.WaitIndex, 10))
	}
	if o.WaitTime > 0 {
		v.Set("wait", strconv.FormatInt(max(o.WaitTime.Milliseconds(), 1), 10)+"ms")
	}
	return v
}

// metaOf reads Consul's headers of an answer; a missing header is zero.
func metaOf(h http.Header) *api.QueryMeta {
	index, _ := strconv.ParseUint(h.Get("X-Consul-Index"), 10, 64)
	contact, _ := strconv.ParseInt(h.Get("X-Consul-LastContact"), 10, 64)
	return &api.QueryMeta{
		LastIndex: index, LastContact: time.Duration(contact) * time.Millisecond,
		ResultsFilteredByACLs: h.Get("X-Consul-Results-Filtered-By-ACLs") == "true",
	}
}

var pairMembers = members[KVPair]{
	"Key":         func(s *scanner, p *KVPair) { p.Key = s.name() },
	"Value":       func(s *scanner, p *KVPair) { p.Value = s.bytes() },
	"CreateIndex": func(s *scanner, p *KVPair) { p.CreateIndex = s.number() },
	"ModifyIndex": func(s *scanner, p *KVPair) { p.ModifyIndex = s.number() },
	"LockIndex":   func(s *scanner, p *KVPair) { p.LockIndex = s.number() },
	"Flags":       func(s *scanner, p *KVPair) { p.Flags = s.number() },
	"Session":     func(s *scanner, p *KVPair) { p.Session = s.str() },
	"Namespace":   func(s *scanner, p *KVPair) { p.Namespace = s.str() },
	"Partition":   func(s *scanner, p *KVPair) { p.Partition = s.str() },
}

// pickPairs reads the whole answer of a KV list. A piece of memory for each pair, key and
// value would be 600 for a group of 200 keys, of which one or two may have changed: what is
// then kept of these pieces lies scattered, and keeps memory from the system.
func pickPairs(s *scanner) KVPairs {
	list := pairMembers.list(s)
	if list == nil {
		return nil
	}
	pairs := make(KVPairs, len(list))
	for i := range list {
		pairs[i] = &list[i]
	}
	return pairs
}

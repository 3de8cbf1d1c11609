package consulmodel_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consulmodel"
	"github.com/jorc/jorc/internal/consultest"
)

// twins are a real Consul and a model that get the same requests.
type twins struct {
	t      *testing.T
	http   string
	client *http.Client
	model  *consulmodel.Model
	keys   []string

	indexes  map[uint64]uint64 // of the real one, with the model's
	sessions map[string]string // of the real one, with the model's
	open     []*blocked
	log      []string // of the requests, for a failure
}

// pair is one value as both have it.
type pair[T any] struct{ real, model T }

// reply is an answer of one of them.
type reply struct {
	status int
	index  uint64
	body   []byte
}

// blocked is a blocking query that both have.
type blocked struct {
	what  string
	real  chan reply
	model *consulmodel.Query
}

// newTwins returns twins whose requests concern keys below prefix, of which both have none.
func newTwins(t *testing.T, s *consultest.Server, prefix string) *twins {
	var keys []string
	for _, key := range []string{"a", "a/", "a/b", "a/b/c", "a/c", "ab", "b/d"} {
		keys = append(keys, prefix+key)
	}
	return &twins{t: t, keys: keys, http: "http://" + s.HTTPAddr, client: &http.Client{Transport: &http.Transport{}}, model: consulmodel.New(), indexes: map[uint64]uint64{0: 0, 1: 1}, sessions: map[string]string{}}
}

// ask sends a request to the real Consul.
func (w *twins) ask(method, path string, body []byte) (reply, error) {
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.http+path, bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	index, _ := strconv.ParseUint(resp.Header.Get("X-Consul-Index"), 10, 64)
	return reply{resp.StatusCode, index, text}, err
}

// both sends a request to both, compares the answers, and those to queries that it ends.
func (w *twins) both(method string, path, body pair[string]) (real, model reply) {
	w.t.Helper()
	w.log = append(w.log, method+" "+path.model+" "+body.model)
	real, err := w.ask(method, path.real, []byte(body.real))
	if err != nil {
		w.t.Fatal(err)
	}
	where, query, _ := strings.Cut(path.model, "?")
	answer := w.model.Do(method, where, query, []byte(body.model), time.Now()).Answer()
	if answer == nil {
		w.fail("the model blocks")
	}
	model = reply{answer.Status, answer.Index, answer.Body}
	w.compare(w.log[len(w.log)-1], real, model)
	w.settle()
	return real, model
}

// same sends a request that is the same for both.
func (w *twins) same(method, path, body string) (real, model reply) {
	w.t.Helper()
	return w.both(method, pair[string]{path, path}, pair[string]{body, body})
}

// settle waits for the real answers to the queries that the model has answered, and compares them.
func (w *twins) settle() {
	w.t.Helper()
	w.model.TakeReady()
	w.open = slices.DeleteFunc(w.open, func(b *blocked) bool {
		answer := b.model.Answer()
		if answer == nil {
			return false
		}
		w.compare(b.what, <-b.real, reply{answer.Status, answer.Index, answer.Body})
		return true
	})
}

// block sends a query that waits for news about what was last seen at an index.
func (w *twins) block(path string, seen pair[uint64]) {
	const wait = "&wait=5m"
	b := &blocked{what: "blocking " + path, real: make(chan reply, 1)}
	w.log = append(w.log, fmt.Sprintf("%s at %d", b.what, seen.model))
	where, query, _ := strings.Cut(path, "?")
	b.model = w.model.Do(http.MethodGet, where, fmt.Sprintf("%s&index=%d%s", query, seen.model, wait), nil, time.Now())
	go func() {
		got, err := w.ask(http.MethodGet, fmt.Sprintf("%s&index=%d%s", path, seen.real, wait), nil)
		if err != nil {
			got.body = []byte(err.Error())
		}
		b.real <- got
	}()
	w.open = append(w.open, b)
	w.settle()
}

func (w *twins) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\nafter:\n%s", fmt.Sprintf(format, args...), strings.Join(w.log[max(0, len(w.log)-40):], "\n"))
}

// compare fails unless both answers say the same.
func (w *twins) compare(what string, real, model reply) {
	w.t.Helper()
	if real.status != model.status {
		w.fail("%s: status %d of Consul, %d of the model\n%s\n%s", what, real.status, model.status, real.body, model.body)
	}
	w.pairIndex(what, real.index, model.index)
	var r, m any
	if json.Unmarshal(real.body, &r) != nil || json.Unmarshal(model.body, &m) != nil {
		if w.known(string(real.body)) != string(model.body) {
			w.fail("%s: Consul answers %q, the model %q", what, real.body, model.body)
		}
		return
	}
	if all, ok := r.(map[string]any); ok {
		if errs, ok := all["Errors"]; ok { // a transaction that only reads says more, which jorc ignores
			r = map[string]any{"Results": all["Results"], "Errors": errs}
		}
	}
	if !w.equal(what, "", r, m) {
		w.fail("%s: the answers differ\nConsul %s\nmodel  %s", what, real.body, model.body)
	}
}

// pairIndex fails unless the same index of Consul has always met the same one of the model, in the same order.
func (w *twins) pairIndex(what string, real, model uint64) {
	w.t.Helper()
	if known, ok := w.indexes[real]; ok {
		if known != model {
			w.fail("%s: Consul's index %d is the model's %d, not %d", what, real, known, model)
		}
		return
	}
	for r, m := range w.indexes {
		if (r < real) != (m < model) || m == model {
			w.fail("%s: index %d of Consul and %d of the model, but %d and %d before", what, real, model, r, m)
		}
	}
	w.indexes[real] = model
}

// numbers are indexes in the text of an error.
var numbers = regexp.MustCompile(`\d+`)

// equal compares two JSON values.
func (w *twins) equal(what, field string, r, m any) bool {
	w.t.Helper()
	switch field {
	case "CreateIndex", "ModifyIndex":
		w.pairIndex(what, uint64(r.(float64)), uint64(m.(float64)))
		return true
	case "Session", "ID":
		id, text := r.(string)
		if known, ok := w.sessions[id]; text && ok {
			return known == m
		}
	case "What":
		return numbers.ReplaceAllString(w.known(r.(string)), "#") == numbers.ReplaceAllString(m.(string), "#")
	}
	switch r := r.(type) {
	case []any:
		m, ok := m.([]any)
		return ok && slices.EqualFunc(r, m, func(a, b any) bool { return w.equal(what, "", a, b) })
	case map[string]any:
		m, ok := m.(map[string]any)
		if !ok || len(r) != len(m) {
			return false
		}
		for name, value := range r {
			if other, there := m[name]; !there || !w.equal(what, name, value, other) {
				return false
			}
		}
		return true
	}
	return r == m
}

// known is a text of Consul with the model's ids of sessions.
func (w *twins) known(text string) string {
	for real, model := range w.sessions {
		text = strings.ReplaceAll(text, real, model)
	}
	return text
}

// session makes a session in both.
func (w *twins) session(body pair[string]) pair[string] {
	w.t.Helper()
	var ids pair[string]
	real, err := w.ask(http.MethodPut, "/v1/session/create", []byte(body.real))
	if err != nil {
		w.t.Fatal(err)
	}
	model := w.model.Do(http.MethodPut, "/v1/session/create", "", []byte(body.model), time.Now()).Answer()
	for text, id := range map[string]*string{string(real.body): &ids.real, string(model.Body): &ids.model} {
		var out struct{ ID string }
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			w.fail("session: %s: %v", text, err)
		}
		*id = out.ID
	}
	w.log = append(w.log, "session "+ids.model)
	w.sessions[ids.real] = ids.model
	return ids
}

// acquire has a session lock a key, if it can.
func (w *twins) acquire(key string, s pair[string]) {
	w.t.Helper()
	w.both(http.MethodPut, pair[string]{"/v1/kv/" + key + "?acquire=" + s.real, "/v1/kv/" + key + "?acquire=" + s.model}, pair[string]{"v", "v"})
}

// renew renews a session in both, or neither has it.
func (w *twins) renew(s pair[string]) {
	w.t.Helper()
	w.log = append(w.log, "renew "+s.model)
	real, err := w.ask(http.MethodPut, "/v1/session/renew/"+s.real, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if got := w.model.Do(http.MethodPut, "/v1/session/renew/"+s.model, "", nil, time.Now()).Answer(); got.Status != real.status {
		w.fail("renew: status %d of Consul, %d of the model", real.status, got.Status)
	}
}

// begin is the beginning of random requests.
func (w *twins) begin(seed uint64) (r *rand.Rand, sessions []pair[string], seen map[string]pair[uint64]) {
	w.t.Helper()
	w.same(http.MethodPut, "/v1/kv/"+w.keys[0], "first") // from here both count the same changes
	return rand.New(rand.NewPCG(seed, 0)), nil, map[string]pair[uint64]{}
}

// finish ends the queries that still block.
func (w *twins) finish(sessions []pair[string]) {
	w.t.Helper()
	for _, s := range sessions {
		w.both(http.MethodPut, pair[string]{"/v1/session/destroy/" + s.real, "/v1/session/destroy/" + s.model}, pair[string]{})
	}
	for _, key := range w.keys {
		w.same(http.MethodPut, "/v1/kv/"+key, "last")
		w.same(http.MethodDelete, "/v1/kv/"+key, "")
	}
	if len(w.open) > 0 {
		w.fail("%d queries still block in the model", len(w.open))
	}
}

// random sends one random request.
func (w *twins) random(r *rand.Rand, sessions *[]pair[string], seen map[string]pair[uint64]) {
	w.t.Helper()
	key := w.keys[r.IntN(len(w.keys))]
	session := func() pair[string] {
		if len(*sessions) == 0 || r.IntN(8) == 0 {
			return pair[string]{"", ""}
		}
		return (*sessions)[r.IntN(len(*sessions))]
	}
	index := func(key string) pair[uint64] { // mostly that of the key
		switch r.IntN(6) {
		case 0:
			return pair[uint64]{0, 0}
		case 1:
			return pair[uint64]{3, 3}
		}
		return w.indexOf(key)
	}
	value := fmt.Sprint("v", r.IntN(3))
	switch r.IntN(16) {
	case 0:
		w.same(http.MethodPut, fmt.Sprintf("/v1/kv/%s?flags=%d", key, r.IntN(2)), value)
	case 1:
		at := index(key)
		w.both(http.MethodPut, pair[string]{fmt.Sprintf("/v1/kv/%s?cas=%d", key, at.real), fmt.Sprintf("/v1/kv/%s?cas=%d", key, at.model)}, pair[string]{value, value})
	case 2:
		s, verb := session(), []string{"acquire", "release"}[r.IntN(2)]
		if s.real == "" {
			return
		}
		w.both(http.MethodPut, pair[string]{"/v1/kv/" + key + "?" + verb + "=" + s.real, "/v1/kv/" + key + "?" + verb + "=" + s.model}, pair[string]{value, value})
	case 3:
		at := index(key)
		w.both(http.MethodDelete, pair[string]{fmt.Sprintf("/v1/kv/%s?cas=%d", key, at.real), fmt.Sprintf("/v1/kv/%s?cas=%d", key, at.model)}, pair[string]{})
	case 4:
		w.same(http.MethodDelete, "/v1/kv/"+key, "")
	case 5:
		if r.IntN(4) == 0 {
			w.same(http.MethodDelete, "/v1/kv/"+key+"?recurse=", "")
		}
	case 6:
		if len(*sessions) < 4 {
			body := fmt.Sprintf(`{"Name":"x","TTL":"1h","NodeChecks":[],"LockDelay":%q,"Behavior":%q}`, []string{"0s", "1m"}[r.IntN(4)/3], []string{"release", "delete"}[r.IntN(2)])
			*sessions = append(*sessions, w.session(pair[string]{body, body}))
		}
	case 7:
		if len(*sessions) > 0 && r.IntN(3) == 0 {
			s := (*sessions)[0]
			*sessions = (*sessions)[1:]
			w.both(http.MethodPut, pair[string]{"/v1/session/destroy/" + s.real, "/v1/session/destroy/" + s.model}, pair[string]{})
		}
	case 8:
		s := session()
		if s.real != "" {
			w.renew(s)
		}
	case 9, 10:
		path := []string{"/v1/kv/" + key + "?", "/v1/kv/" + key + "?recurse=", "/v1/kv/" + key + "?keys=&separator=/"}[r.IntN(3)]
		if real, model := w.same(http.MethodGet, path, ""); real.status == http.StatusOK {
			seen[path] = pair[uint64]{real.index, model.index}
		}
	case 11:
		paths := slices.Sorted(keysOf(seen))
		if len(paths) > 0 && len(w.open) < 8 {
			path := paths[r.IntN(len(paths))]
			real, model := w.same(http.MethodGet, path, "")
			if real.status == http.StatusOK { // others wake sooner or later: see concerns
				w.block(path, pair[uint64]{real.index, model.index})
			}
		}
	default:
		w.transaction(r, session, index)
	}
}

func keysOf[T any](m map[string]T) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// indexOf returns the index of a key in both; 0: it does not exist.
func (w *twins) indexOf(key string) pair[uint64] {
	_, model := w.model.Value(key)
	for r, m := range w.indexes {
		if m == model {
			return pair[uint64]{r, m}
		}
	}
	return pair[uint64]{}
}

// transaction sends a random transaction.
func (w *twins) transaction(r *rand.Rand, session func() pair[string], index func(string) pair[uint64]) {
	w.t.Helper()
	verbs := []string{
		"set", "cas", "cas", "lock", "unlock", "get", "get-or-empty", "check-session", "check-index", "check-index", "check-not-exists",
		"delete", "delete-cas", "delete-tree",
	}
	type kv struct {
		Verb, Key, Session string
		Value              []byte
		Flags, Index       uint64
	}
	type op struct{ KV kv }
	var real, model []op
	for range 1 + r.IntN(4) {
		o := kv{Verb: verbs[r.IntN(len(verbs))], Key: w.keys[r.IntN(len(w.keys))]}
		if o.Verb == "set" || o.Verb == "cas" || o.Verb == "lock" || o.Verb == "unlock" {
			o.Value = fmt.Append(nil, "v", r.IntN(3))
		}
		at, s := index(o.Key), session()
		o.Index, o.Session = at.real, s.real
		real = append(real, op{o})
		o.Index, o.Session = at.model, s.model
		model = append(model, op{o})
	}
	text := func(ops []op) string {
		body, err := json.Marshal(ops)
		if err != nil {
			w.t.Fatal(err)
		}
		return string(body)
	}
	w.both(http.MethodPut, pair[string]{"/v1/txn", "/v1/txn"}, pair[string]{text(real), text(model)})
}

// TestAgainstConsul: the model and a real Consul answer the same random requests alike: statuses, values,
// errors, the order of all indexes, and which queries that block are answered with what.
func TestAgainstConsul(t *testing.T) {
	server := consultest.Start(t)
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := newTwins(t, server, fmt.Sprintf("seed-%d/", seed))
			r, sessions, seen := w.begin(seed)
			for range 600 {
				w.random(r, &sessions, seen)
			}
			w.finish(sessions)
		})
	}
}

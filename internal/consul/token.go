package consul

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// tokenSource is the token of the moment: a file that may be replaced at any
// time, or a fixed string.
type tokenSource struct {
	file  string
	fixed string

	mu    sync.Mutex
	token string
	stamp time.Time
	size  int64
}

// get returns the present token. A file is read again when it has changed.
func (t *tokenSource) get() (string, error) {
	if t.file == "" {
		return t.fixed, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Stat(t.file)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	if t.token != "" && info.ModTime().Equal(t.stamp) && info.Size() == t.size {
		return t.token, nil
	}
	data, err := os.ReadFile(t.file)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", fmt.Errorf("token file %s is empty", t.file)
	}
	t.token, t.stamp, t.size = token, info.ModTime(), info.Size()
	return token, nil
}

// authorized puts the present token on every request, and on no redirect
// elsewhere: Consul's API does not redirect.
type authorized struct {
	next   http.RoundTripper
	tokens *tokenSource
	local  *atomic.Bool // see plainAnswers
}

func (a *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := a.tokens.get()
	if err != nil {
		return nil, &Error{Op: "authorize", Class: ErrDenied, Err: err}
	}
	r = r.Clone(r.Context())
	r.Header.Del("X-Consul-Token")
	if token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	if a.local.Load() {
		plainAnswers(r)
	}
	return a.next.RoundTrip(r)
}

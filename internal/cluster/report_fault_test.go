package cluster_test

import (
	"net/http"
	"sync"

	"github.com/jorc/jorc/internal/consultest"
)

// nthRequest is a fault in the nth request from now on, and in no other.
type nthRequest struct {
	n     int
	fault consultest.Fault

	mu   sync.Mutex
	seen int
}

func (f *nthRequest) of(*http.Request) consultest.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen++
	if f.seen == f.n {
		return f.fault
	}
	return consultest.Fault{}
}

// met tells whether there were so many requests.
func (f *nthRequest) met() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen >= f.n
}

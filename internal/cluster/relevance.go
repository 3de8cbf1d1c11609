package cluster

import (
	"slices"
	"strings"
	"sync"

	"github.com/jorc/jorc/internal/consul"
)

// relevance tells which news of failing checks an election has to look at. While
// all places are filled and no leader fails it is only about leaders: in a large
// cluster checks of others come and go all the time, and to look is to read all
// members.
type relevance struct {
	mu      sync.Mutex
	leaders Leaders
	failing []string // "node check notes", in order
	last    string   // what mattered of it when it was asked
}

// lead takes over who leads. It is always news.
func (r *relevance) lead(l Leaders) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaders = l
	r.last = r.matters()
}

// fail takes over which checks are critical, and tells whether that is news.
func (r *relevance) fail(checks consul.HealthChecks) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing = r.failing[:0]
	for _, c := range checks {
		r.failing = append(r.failing, c.Node+" "+c.CheckID+" "+c.Notes)
	}
	slices.Sort(r.failing)
	now := r.matters()
	news := now != r.last
	r.last = now
	return news
}

// matters is what of the failing checks matters, with r.mu held.
func (r *relevance) matters() string {
	of := slices.DeleteFunc(slices.Clone(r.failing), func(check string) bool {
		node, _, _ := strings.Cut(check, " ")
		return !r.leaders.Leads(node)
	})
	if len(of) > 0 || r.leaders.Vacancies() > 0 || len(r.leaders.Retired) > 0 {
		of = r.failing // somebody else is wanted, whoever is well
	}
	return strings.Join(of, "\n")
}

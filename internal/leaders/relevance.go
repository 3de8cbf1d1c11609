package leaders

import (
	"slices"
	"strings"
	"sync"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
)

// relevantChecks tells which news of failing checks an election has to read. While
// all places are filled and no leader fails it is only about leaders: in a large
// cluster checks of others come and go all the time, and to look is to read all
// members.
type relevantChecks struct {
	mu      sync.Mutex
	leaders cluster.Leaders
	failing []string // "node check notes", in order
	last    string   // what mattered of it when it was asked
}

// setLeaders takes over who leads. It is always news.
func (r *relevantChecks) setLeaders(l cluster.Leaders) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaders = l
	r.last = r.relevant()
}

// setFailing takes over which checks are critical, and reports whether that is
// news. Maintenance that jorc set and ends by itself does not matter to elections.
func (r *relevantChecks) setFailing(checks consul.HealthChecks) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing = r.failing[:0]
	for _, c := range checks {
		if cluster.OwnMaintenance(c) {
			continue
		}
		r.failing = append(r.failing, c.Node+" "+c.CheckID+" "+c.Notes)
	}
	slices.Sort(r.failing)
	now := r.relevant()
	news := now != r.last
	r.last = now
	return news
}

// relevant is what of the failing checks matters, with r.mu held.
func (r *relevantChecks) relevant() string {
	of := slices.DeleteFunc(slices.Clone(r.failing), func(check string) bool {
		node, _, _ := strings.Cut(check, " ")
		return !r.leaders.Leads(node)
	})
	if len(of) > 0 || r.leaders.Vacancies() > 0 || len(r.leaders.Retired) > 0 {
		of = r.failing // another leader is wanted: all checks count
	}
	return strings.Join(of, "\n")
}

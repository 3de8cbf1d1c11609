package watch

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/config"
)

// guard keeps a service in a file as it was, rather than let it lose more
// instances than the template's configuration allows. It holds back one
// service; the rest of the file goes on.
type guard struct {
	least       map[string]int // service → instances
	shrink      int            // most instances lost at once, or per cent of them; 0 = no limit
	percent     bool
	shrinkAfter time.Duration // 0 = never believed
	emptyAfter  time.Duration
	allowEmpty  bool
}

func newGuard(c *config.Template) (guard, error) {
	g := guard{
		least: c.MinInstances, shrinkAfter: c.ShrinkAfter,
		emptyAfter: c.EmptyAfter, allowEmpty: c.AllowEmpty,
	}
	if c.MaxShrink == "" {
		return g, nil
	}
	digits, percent := strings.CutSuffix(c.MaxShrink, "%")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || percent && n > 100 {
		return g, fmt.Errorf("template %q: max_shrink %q is neither a count nor a percentage", c.Name, c.MaxShrink)
	}
	g.shrink, g.percent = n, percent
	return g, nil
}

// verdict says whether a service's new list is held back.
type verdict struct {
	hold  bool
	why   string
	until time.Time // when it would be believed; zero: not before it changes
}

// judge decides about the instances of service d. had is what the file is made
// of now; known is false when nobody knows. since is when the present hold
// began, or now.
func (g guard) judge(d *dependency, had, next []*dep.HealthService, known bool, since time.Time) verdict {
	if least := g.least[d.name]; len(next) < least {
		return verdict{hold: true, why: fmt.Sprintf("%s has %d instances, min_instances is %d", d.shownName(), len(next), least)}
	}
	if g.allowEmpty && len(next) == 0 {
		return verdict{}
	}
	if len(next) == 0 && (len(had) > 0 || !known) {
		return verdict{
			hold: true, until: since.Add(g.emptyAfter),
			why: fmt.Sprintf("%s has no instance left, empty_after is %s", d.shownName(), g.emptyAfter),
		}
	}
	gone := countGone(had, next)
	if g.shrink > 0 && gone > g.mostGone(len(had)) {
		v := verdict{hold: true, why: fmt.Sprintf("%s would lose %d of %d instances, max_shrink is %s", d.shownName(), gone, len(had), g.limit())}
		if g.shrinkAfter > 0 {
			v.until = since.Add(g.shrinkAfter)
		}
		return v
	}
	return verdict{}
}

// judgeName decides about a service that is no longer in the list of all
// services.
func (g guard) judgeName(name string, since time.Time) verdict {
	if g.least[name] > 0 {
		return verdict{hold: true, why: fmt.Sprintf("%s is no longer registered, min_instances is %d", name, g.least[name])}
	}
	if g.allowEmpty {
		return verdict{}
	}
	return verdict{
		hold: true, until: since.Add(g.emptyAfter),
		why: fmt.Sprintf("%s is no longer registered, empty_after is %s", name, g.emptyAfter),
	}
}

func (g guard) mostGone(had int) int {
	if g.percent {
		return had * g.shrink / 100
	}
	return g.shrink
}

func (g guard) limit() string {
	if g.percent {
		return fmt.Sprintf("%d%%", g.shrink)
	}
	return strconv.Itoa(g.shrink)
}

func countGone(had, next []*dep.HealthService) int {
	there := make(map[string]bool, len(next))
	for _, s := range next {
		there[instanceKey(s)] = true
	}
	gone := 0
	for _, s := range had {
		if !there[instanceKey(s)] {
			gone++
		}
	}
	return gone
}

package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jorc/jorc/internal/consul"
)

// maxRights is how many rights Consul checks per request.
const maxRights = 64

// rights checks that the token has what jorc needs: one finding per missing
// right, or one for all.
func (e *examination) rights(ctx context.Context) []Finding {
	const name = "acl"
	if !e.answers() {
		return unanswered(name)
	}
	node, err := e.name()
	if unknownToken(err) {
		return unknown(name, err)
	}
	// Without a name the token lacks agent:read; what is asked for then is "".
	configured := len(e.Paths) > 0 && e.Problem == nil
	needed := needsOf(e.Config, node, configured)
	var missing []need
	for batch := range slices.Chunk(needed, maxRights) {
		asked := make([]consul.Right, len(batch))
		for i, n := range batch {
			asked[i] = n.Right
		}
		allowed, err := bounded(ctx, e.Timeout, func(ctx context.Context) ([]bool, error) { return e.client.Authorize(ctx, asked...) })
		if err != nil {
			return one(name, Fail, why(err), remedyFor(err))
		}
		for i, n := range batch {
			if !allowed[i] {
				missing = append(missing, n)
			}
		}
	}
	return classifyRights(name, len(needed), missing)
}

func classifyRights(name string, asked int, missing []need) []Finding {
	if len(missing) == 0 {
		return one(name, OK, fmt.Sprintf("the token has all %d rights that jorc asks for", asked), "")
	}
	found := make([]Finding, len(missing))
	for i, n := range missing {
		status := Fail
		if n.optional {
			status = Warn
		}
		found[i] = Finding{name, status, fmt.Sprintf("%s:%s on %q is missing: %s", n.Resource, n.Access, n.Segment, n.why), "grant " + n.rule()}
	}
	return found
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

package rollout

import "time"

// begin is the document of a new rollout. A plain one admits everybody at once;
// of any other nobody begins before the first plan.
func begin(version string, p Policy, by, previous string, now time.Time) Document {
	d := Document{
		Version: version, Previous: previous, Policy: p.Complete(), By: by, Started: stamp(now), Since: stamp(now),
		Phase: Waiting, Rule: Rule{Full: true},
	}
	if d.Policy.Plain() {
		d.Phase, d.Batch, d.Rule = Batch, 1, Rule{All: true}
	}
	return d
}

// repolicied is the document with another policy, half way. What is out stays
// out; where the steps change, they are walked again from the first, past what
// is done. Until the next plan nobody begins who is in service.
func (d Document) repolicied(p Policy, now time.Time) Document {
	p = p.Complete()
	if p.equal(d.Policy) {
		return d
	}
	same := p.sameWalk(d.Policy)
	d.Policy = p
	switch {
	case d.Over():
	case d.Phase == RollingBack:
		d.Rule.Full = true
	case !same:
		d.Phase, d.Batch, d.Since, d.Rule = Waiting, 0, stamp(now), Rule{Full: true}
	default:
		d.Rule.Full = true
	}
	return d
}

// Adopt returns the document of a version that was written to current_version
// past the rollout; ok is false when there is nothing to adopt.
func Adopt(s Snapshot, now time.Time) (next Document, ok bool) {
	if s.Desired == "" || s.Exists && s.Document.Version == s.Desired {
		return s.Document, false
	}
	return begin(s.Desired, Policy{}, "", s.Document.lastHealthy(), now), true
}

// lastHealthy is the last version that all members ran without a failure.
func (d Document) lastHealthy() string {
	if d.Phase == Done && d.Counts.Failed == 0 {
		return d.Version
	}
	return d.Previous
}

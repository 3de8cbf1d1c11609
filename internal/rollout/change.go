package rollout

import "time"

// paused is the document with a pause; one that is paused or over stays.
func (d Document) paused(s Stop, now time.Time) Document {
	if d.Stopped == nil && !d.Over() {
		s.Since = stamp(now)
		d.Stopped = &s
	}
	return d
}

// resumed is the document without its pause: what failed until then is
// accepted, and the time without progress begins anew.
func (d Document) resumed(now time.Time) Document {
	if d.Stopped != nil && !d.Over() {
		d.Stopped, d.Forgive, d.Since = nil, true, stamp(now)
	}
	return d
}

// promoted is the document with consent to go on after the canary.
func (d Document) promoted() Document {
	if !d.Over() && (d.Phase == Waiting || d.Phase == Canary) && d.Policy.Canary > 0 {
		d.Promoted = true
	}
	return d
}

// aborted is the document of a rollout that admits nobody any more.
func (d Document) aborted(s Stop, now time.Time) Document {
	if !d.Over() {
		s.Since = stamp(now)
		d.Phase, d.Batch, d.Since, d.Finished = Aborted, 0, s.Since, s.Since
		d.Rule, d.Stopped = Rule{}, &s
	}
	return d
}

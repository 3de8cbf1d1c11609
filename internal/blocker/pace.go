package blocker

import "time"

// At most one question a second while there is no news; right after news the
// answer may lag by a little, which a few questions more bridge.
const (
	idlePause  = time.Second
	sureFactor = 10 // a satisfied need that is watched is asked for this much less often
	eagerTries = 9
	firstPause = time.Millisecond
)

// pace decides when to ask DNS next. The zero pace asks at once.
type pace struct {
	last  time.Time
	cost  int // questions that the last turn took
	eager int // quick tries left
	pause time.Duration
	sure  bool
}

// asked notes a turn that took cost questions.
func (p *pace) asked(now time.Time, cost int) {
	p.last, p.cost = now, cost
	if p.eager > 0 {
		p.eager--
		p.pause = max(2*p.pause, firstPause)
	}
}

// hurry says that DNS is about to answer something else.
func (p *pace) hurry() { p.eager, p.pause = eagerTries, 0 }

// settle says that DNS answers what was expected; sure, that news of any
// change will come.
func (p *pace) settle(sure bool) { p.eager, p.sure = 0, sure }

// due is when to ask next.
func (p *pace) due() time.Time {
	switch {
	case p.last.IsZero():
		return time.Time{}
	case p.eager > 0:
		return p.last.Add(p.pause)
	case p.sure:
		return p.last.Add(sureFactor * idlePause)
	default:
		return p.last.Add(time.Duration(max(p.cost, 1)) * idlePause)
	}
}

package blocker

import (
	"testing"
	"time"
)

// asks returns the times of p's queries within d, after the first one.
func asks(p *pace, begin time.Time, d time.Duration, cost int) []time.Duration {
	var at []time.Duration
	for {
		due := p.due()
		if due.After(begin.Add(d)) {
			return at
		}
		p.asked(due, cost)
		at = append(at, due.Sub(begin))
	}
}

func TestPaceIdle(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	var p pace
	if !p.due().IsZero() {
		t.Error("the first question waits")
	}
	p.asked(begin, 1)
	if got := len(asks(&p, begin, time.Minute, 1)); got != 60 {
		t.Errorf("%d questions in a minute, want 60", got)
	}
	p = pace{}
	p.asked(begin, 2) // A and AAAA
	if got := len(asks(&p, begin, time.Minute, 2)); got != 30 {
		t.Errorf("%d turns of two questions in a minute, want 30", got)
	}
}

func TestPaceAfterNews(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	var p pace
	p.asked(begin, 1)
	p.expectChange()
	got := asks(&p, begin, 2*time.Second, 1)
	if got[0] != 0 || got[1] != time.Millisecond || got[2] != 3*time.Millisecond {
		t.Errorf("after news it asks at %v, want at once, after 1 and 3 ms", got[:3])
	}
	if len(got) > eagerTries+2 {
		t.Errorf("%d questions about news that DNS does not confirm, want at most %d", len(got), eagerTries+2)
	}
	p.expectChange()
	p.settle(false)
	if p.due() != p.last.Add(idlePause) {
		t.Error("it asks on although DNS confirmed the news")
	}
	p.settle(true)
	if p.due() != p.last.Add(sureFactor*idlePause) {
		t.Error("a need that is satisfied and watched is asked for too often")
	}
}

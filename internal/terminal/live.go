package terminal

import (
	"sync"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
)

const (
	// refresh is how often the size of the window and the clocks are read: a change
	// of the size does not go unnoticed for long, and drawing the same costs nothing.
	refresh = 200 * time.Millisecond
	// between is how long at least two plain lines are apart.
	between = time.Second
)

// Live shows a Progress until it is stopped: on a Screen with running clocks, or as
// plain lines when it changes.
type Live struct {
	screen *Screen // nil: plain lines
	colour bool
	print  func(line string)
	quiet  time.Duration // between plain lines, and before the first one

	changed concurrency.Signal
	stop    chan struct{}
	ended   sync.WaitGroup

	mu   sync.Mutex
	last *Progress // nil: nothing was shown yet

	printed string
	next    time.Time // of the next plain line
}

// OnScreen shows a Progress on screen, with colours or without.
func OnScreen(screen *Screen, colour bool) *Live {
	return start(&Live{screen: screen, colour: colour})
}

// PlainLines prints a Progress line by line: the first one after quiet, and the
// next ones at least quiet apart.
func PlainLines(quiet time.Duration, print func(line string)) *Live {
	l := &Live{print: print, quiet: quiet}
	l.next = time.Now().Add(quiet)
	return start(l)
}

func start(l *Live) *Live {
	l.changed, l.stop = concurrency.NewSignal(), make(chan struct{})
	l.ended.Go(l.run)
	return l
}

// Show shows p from now on.
func (l *Live) Show(p Progress) {
	p = p.sorted()
	l.mu.Lock()
	l.last = &p
	l.mu.Unlock()
	l.changed.Notify()
}

// Stop ends the display. With keep a summary of the last Progress stays. Nothing
// may be shown afterwards.
func (l *Live) Stop(keep bool) {
	close(l.stop)
	l.ended.Wait()
	p := l.latest()
	switch {
	case l.screen == nil && l.printed != "":
		l.next = time.Time{} // the last one is not missing
		l.printLine()
	case l.screen == nil:
	case keep && p != nil:
		l.screen.Draw(p.Summary().Lines(l.screen.size(), time.Now(), l.colour))
	default:
		l.screen.Clear()
	}
}

func (l *Live) latest() *Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *Live) run() {
	every := refresh
	if l.screen == nil {
		every = between
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		case <-l.changed.C():
		}
		if l.screen == nil {
			l.printLine()
		} else if p := l.latest(); p != nil {
			l.screen.Draw(p.Lines(l.screen.size(), time.Now(), l.colour))
		}
	}
}

// printLine prints what has changed since the last line, if that is long enough ago.
func (l *Live) printLine() {
	p, now := l.latest(), time.Now()
	if p == nil || now.Before(l.next) || p.Line() == l.printed {
		return
	}
	l.printed, l.next = p.Line(), now.Add(max(l.quiet, between))
	l.print(l.printed)
}

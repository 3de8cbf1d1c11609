package terminal_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"

	"github.com/jorc/jorc/internal/terminal"
)

var began = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// output is what a terminal got.
type output struct {
	mu   sync.Mutex
	text []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

func (o *output) Reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = nil
}

// example is a rollout in which something of everything happens.
func example() terminal.Progress {
	return terminal.Progress{
		Title: "v42: batch 2 of 3, 2 working, 1 failed", Since: began, Done: 3, Total: 9, Waits: "web-2 to finish",
		Hosts: []terminal.Host{
			{Name: "web-3", Kind: terminal.Failed, State: "failed", Since: began.Add(20 * time.Second), Text: "config failed: exit code 4"},
			{Name: "web-2", Kind: terminal.Working, State: "working", Since: began.Add(time.Minute), Text: "config is running"},
			{Name: "web-10", Kind: terminal.Working, State: "working", Since: began.Add(70 * time.Second)},
			{Name: "web-4", Kind: terminal.Waiting, State: "pending", Since: began, Text: "it is held: lunch"},
			{Name: "web-5", Kind: terminal.Waiting, State: "down", Text: "its host or its agent is down"},
			{Name: "web-6", Kind: terminal.Waiting, State: "pending", Since: began, Text: "not admitted yet"},
		},
	}
}

// sortedLines are the lines of p as a Live draws them.
func sortedLines(t *testing.T, p terminal.Progress, size terminal.Size) []string {
	t.Helper()
	var out output
	frame := ""
	synctest.Test(t, func(*testing.T) {
		now := time.Now()
		shift := func(at time.Time) time.Time {
			if at.IsZero() {
				return at
			}
			return now.Add(at.Sub(began.Add(75 * time.Second)))
		}
		p.Since = shift(p.Since)
		for i := range p.Hosts {
			p.Hosts[i].Since = shift(p.Hosts[i].Since)
		}
		live := terminal.OnScreen(terminal.NewScreen(&out, func() terminal.Size { return size }), false)
		live.Show(p)
		synctest.Wait()
		frame = out.String()
		live.Stop(false)
	})
	frame = strings.TrimSuffix(strings.TrimPrefix(frame, "\r\x1b[?7l"), "\x1b[J\x1b[?7h")
	return strings.Split(strings.TrimSuffix(frame, "\x1b[K\n"), "\x1b[K\n")
}

// TestLines: what windows of several sizes show.
func TestLines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		size terminal.Size
		want string
	}{
		{terminal.Size{Columns: 72, Rows: 24}, `
v42: batch 2 of 3, 2 working, 1 failed                            1m15s
[====================>                                       ] 3 / 9
waits for: web-2 to finish
web-3   failed     55s  config failed: exit code 4
web-2   working    15s  config is running
web-10  working     5s
web-5   down            its host or its agent is down
web-4   pending  1m15s  it is held: lunch
web-6   pending  1m15s  not admitted yet`},
		{terminal.Size{Columns: 40, Rows: 7}, `
v42: batch 2 of 3, 2 working, 1 … 1m15s
[==========>                    ] 3 / 9
waits for: web-2 to finish
web-3  failed   55s  config failed: ex…
web-2  working  15s  config is running
… and 4 more: 1 working, 1 down, 2 pen…`},
		{terminal.Size{Columns: 20, Rows: 4}, `
v42: batch 2 of 3,…
[===>       ] 3 / 9
… and 6 more: 1 fa…`},
		{terminal.Size{Columns: 12, Rows: 3}, `
v42: batch…
3 / 9`},
		{terminal.Size{Columns: 3, Rows: 1}, ``},
	} {
		got := sortedLines(t, example(), test.size)
		if strings.Join(got, "\n") != strings.TrimPrefix(test.want, "\n") {
			t.Errorf("%+v: got\n%s\nwant%s", test.size, strings.Join(got, "\n"), test.want)
		}
	}
}

// TestHostileTexts: names and reasons stay text, and wide characters keep the
// columns aligned.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	p := example()
	p.Title = "v\x1b[2J\n1"
	p.Waits = "a\tb"
	p.Hosts = []terminal.Host{
		{Name: "数据库-1", Kind: terminal.Failed, State: "failed", Since: began, Text: "\x1b]0;owned\x07\u202e 失败"},
		{Name: "e" + strings.Repeat("\u0301", 5000), Kind: terminal.Failed, State: "failed", Since: began, Text: "marks"},
		{Name: "\x9bA", Kind: terminal.Failed, State: "fai\rled", Since: began, Text: strings.Repeat("界", 500)},
	}
	lines := sortedLines(t, p, terminal.Size{Columns: 60, Rows: 24})
	for _, line := range lines {
		if n := runewidth.StringWidth(line); n > 59 || !utf8.ValidString(line) || strings.ContainsAny(line, "\x1b\x07\r\t\u202e") {
			t.Errorf("%d cells: %q", n, line)
		}
		if len(line) > 2000 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	want := []string{`v\u001b[2J\n1`, `waits for: a\tb`, `\x9bA     fai\u000dled  1m15s  界界界界界界界界界界界界界…`, `数据库-1  failed        1m15s  \u001b]0;owned\u0007\u202e …`}
	for _, w := range want {
		if !strings.Contains(strings.Join(lines, "\n"), w) {
			t.Errorf("got\n%s\nwithout %q", strings.Join(lines, "\n"), w)
		}
	}
}

// TestScreen: what was drawn is overwritten, also after the window became narrower
// and its lines wrapped; the same is not drawn again.
func TestScreen(t *testing.T) {
	t.Parallel()
	var out output
	size := terminal.Size{Columns: 10, Rows: 5}
	s := terminal.NewScreen(&out, func() terminal.Size { return size })
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { s.Clear() }, ""},
		{func() { s.Draw([]string{"\x1b[31mabcdefgh\x1b[0m", "界界"}) }, "\r\x1b[?7l\x1b[31mabcdefgh\x1b[0m\x1b[K\n界界\x1b[K\n\x1b[J\x1b[?7h"},
		{func() { s.Draw([]string{"\x1b[31mabcdefgh\x1b[0m", "界界"}) }, ""},
		{func() { size.Columns = 4; s.Draw([]string{"abc"}) }, "\r\x1b[3A\x1b[?7labc\x1b[K\n\x1b[J\x1b[?7h"},
		{func() { s.Clear() }, "\r\x1b[1A\x1b[J"},
		{func() { s.Clear() }, ""},
	} {
		out.Reset()
		step.do()
		if got := out.String(); got != step.want {
			t.Errorf("got  %q\nwant %q", got, step.want)
		}
	}
}

// TestLiveClock: the clock runs on its own, a state that fails is coloured, and a
// summary stays.
func TestLiveClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out output
		live := terminal.OnScreen(terminal.NewScreen(&out, func() terminal.Size { return terminal.Size{Columns: 50, Rows: 10} }), true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if out.String() != "" {
			t.Errorf("before there is anything to show: %q", out.String())
		}
		now := time.Now()
		p := terminal.Progress{Title: "v1: batch 1 of 1", Since: now, Done: 1, Total: 2, Hosts: []terminal.Host{
			{Name: "a", Kind: terminal.Failed, State: "failed", Since: now, Text: "no"},
			{Name: "b", Kind: terminal.Working, State: "working", Since: now},
		}}
		shows := func(want ...string) {
			t.Helper()
			synctest.Wait()
			for _, w := range want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("got %q without %q", out.String(), w)
				}
			}
			out.Reset()
		}
		live.Show(p)
		shows(" 0s\x1b[K\n", "a  \x1b[31mfailed\x1b[0m   0s  no", "b  \x1b[33mworking\x1b[0m  0s")
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		if out.String() != "" {
			t.Errorf("nothing changed: %q", out.String())
		}
		time.Sleep(65 * time.Second)
		shows(" 1m05s\x1b[K\n", "b  \x1b[33mworking\x1b[0m  1m05s")
		p.Done, p.Until = 2, now.Add(time.Hour)
		live.Show(p)
		live.Stop(true)
		if got := out.String(); !strings.HasSuffix(got, " 1h00m\x1b[K\n[=========================================] 2 / 2\x1b[K\na  \x1b[31mfailed\x1b[0m  1m05s  no\x1b[K\n\x1b[J\x1b[?7h") {
			t.Errorf("in the end: %q", got)
		}
	})
}

// TestPlainLines: without a terminal a change is one line, not before it is time.
func TestPlainLines(t *testing.T) {
	t.Parallel()
	for quiet, want := range map[time.Duration]string{
		0:                "3s v, 3 / 9; 5s v, 5 / 9; 6s v, 6 / 9",
		10 * time.Second: "10s v, 6 / 9; 21s w, 7 / 9; 22s w, 8 / 9",
		time.Minute:      "",
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []string
			begin := time.Now()
			live := terminal.PlainLines(quiet, func(line string) {
				got = append(got, fmt.Sprintf("%v %s", time.Since(begin).Truncate(time.Second), line))
			})
			time.Sleep(3 * time.Second)
			for i := 3; i < 7; i++ {
				live.Show(terminal.Progress{Title: "v", Since: begin, Done: i - i%5/4, Total: 9})
				time.Sleep(time.Second)
			}
			if quiet > 0 {
				time.Sleep(14 * time.Second)
				live.Show(terminal.Progress{Title: "w", Done: 7, Total: 9})
				time.Sleep(time.Second)
				live.Show(terminal.Progress{Title: "w", Done: 8, Total: 9})
			}
			live.Stop(true)
			if text := strings.Join(got, "; "); text != want {
				t.Errorf("quiet for %v: got %q, want %q", quiet, text, want)
			}
		})
	}
}

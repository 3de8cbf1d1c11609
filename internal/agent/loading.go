package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
)

const (
	// restAfter is how often the kernel may kill the agent while it loads templates until
	// the next start does not load them.
	restAfter = 2
	// restFor is how close together these ends must be, and for how long templates are
	// not loaded then: long enough for an alarm, short enough for a host that no operator sees.
	restFor = 10 * time.Minute
)

// loading keeps an agent that has too little memory for its templates from being killed
// and started for ever: it would take its services along each time. A mark on the disk
// says that templates are being loaded. A start that finds it, and that the kernel has
// killed a process for want of memory since, counts that end.
//
// kill -9, a crash and a power failure do not count.
type loading struct {
	doc   durable.Doc[loadingRecord]
	rest  time.Duration
	clock durable.Clock // of the host
	log   hclog.Logger
	// kills is how many processes the kernel has killed for want of memory in this boot.
	kills func() (n uint64, ok bool)

	mu      sync.Mutex
	begun   bool // in this process
	record  loadingRecord
	resting string // why templates are not loaded now; empty: they are
}

type loadingRecord struct {
	// Config is the digest of what the record is about.
	Config string              `json:"config,omitempty"`
	Mark   *loadingMark        `json:"mark,omitempty"` // templates are being loaded; nil: they are not
	Ends   []durable.Stopwatch `json:"ends,omitempty"` // that were counted
	Rest   *durable.Stopwatch  `json:"rest,omitempty"` // templates are not loaded; nil: they may be
}

// loadingMark is what is known when loading begins.
type loadingMark struct {
	Boot  string `json:"boot"`
	Kills uint64 `json:"kills"`
	// Last: loading is tried again after a rest. One more end suffices for the next.
	Last bool `json:"last,omitempty"`
}

const loadingFormat = 1

func newLoading(stateDir string, rest time.Duration, log hclog.Logger) *loading {
	if rest == 0 {
		rest = restFor
	}
	return &loading{doc: durable.NewDoc[loadingRecord](filepath.Join(stateDir, "loading.json"), loadingFormat), rest: rest, log: log, kills: oomKills}
}

// oomKills reads the kernel's count; it has one since Linux 4.13.
func oomKills() (n uint64, ok bool) {
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if count, found := strings.CutPrefix(line, "oom_kill "); found {
			n, err = strconv.ParseUint(strings.TrimSpace(count), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// why is why templates are not loaded now; empty: they are.
func (l *loading) why() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resting
}

// begin marks that the templates of c are being loaded, or returns for how long they must
// not be.
func (l *loading) begin(c *config.Config) (rest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resting = ""
	reload := l.begun
	l.begun = true
	r := loadingRecord{}
	if !reload { // a reload is an operator's wish to try
		r = l.read()
	}
	digest := digestOf(c)
	if r.Config != digest {
		r = loadingRecord{Config: digest}
	}
	last := false
	if r.Mark != nil && l.killed(*r.Mark) {
		l.log.Warn("the kernel killed the agent for want of memory while it loaded its templates")
		r.Ends = append(r.Ends, l.clock.Start())
		last = r.Mark.Last
	}
	r.Mark = nil
	r.Ends = l.recent(r.Ends)
	if r.Rest == nil && (len(r.Ends) >= restAfter || last) {
		began := l.clock.Start()
		r.Rest = &began
	}
	if r.Rest != nil {
		resumed := l.clock.Resumed(*r.Rest)
		r.Rest = &resumed
		if rest = l.rest - l.clock.Elapsed(resumed); rest > 0 {
			l.resting = fmt.Sprintf("no template is rendered until %s: the kernel killed the agent for want of memory while it loaded their data. "+
				"Let templates read less, or give the agent more memory (MemoryMax of its unit); then 'systemctl reload jorc' renders at once",
				time.Now().Add(rest).UTC().Format(time.RFC3339))
			l.keep(r)
			return rest
		}
	}
	l.mark(r)
	return 0
}

// mark begins to load. The caller holds mu.
func (l *loading) mark(r loadingRecord) {
	kills, _ := l.kills() // without a count no end counts
	r.Mark = &loadingMark{Boot: l.clock.Boot(), Kills: kills, Last: r.Rest != nil}
	r.Rest, l.resting = nil, ""
	l.keep(r)
}

// rested begins to load after a rest.
func (l *loading) rested() {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.record
	r.Ends = nil // they were what the rest was for
	l.mark(r)
}

// loaded ends the mark: the start has succeeded.
func (l *loading) loaded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep(loadingRecord{})
}

// stopped ends the mark of an agent that stops by itself. What was counted stays.
func (l *loading) stopped() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record.Mark == nil {
		return
	}
	r := l.record
	r.Mark = nil
	l.keep(r)
}

// killed reports whether the kernel may have killed the process that made the mark.
func (l *loading) killed(m loadingMark) bool {
	kills, ok := l.kills()
	return ok && m.Boot == l.clock.Boot() && kills > m.Kills
}

// recent returns the ends that still count.
func (l *loading) recent(ends []durable.Stopwatch) (recent []durable.Stopwatch) {
	for _, e := range ends {
		if e = l.clock.Resumed(e); l.clock.Elapsed(e) < l.rest {
			recent = append(recent, e)
		}
	}
	return recent
}

// read returns what an earlier process left. What cannot be read counts as nothing.
func (l *loading) read() (r loadingRecord) {
	r, _, err := l.doc.Load()
	if err != nil {
		l.log.Warn("it is not known whether the last starts of the agent succeeded", "error", err)
	}
	return r
}

// keep writes the record; for an empty one it removes the file. The caller holds mu.
func (l *loading) keep(r loadingRecord) {
	l.record = r
	write := func() error { return l.doc.Save(r) }
	if r.Mark == nil && r.Rest == nil && len(r.Ends) == 0 {
		write = l.doc.Remove
	}
	if err := write(); err != nil {
		l.log.Warn("how far this start is cannot be recorded", "error", err)
	}
}

// digestOf changes with what templates may read.
func digestOf(c *config.Config) string {
	text, err := json.Marshal(struct {
		Templates []config.Template
		Options   config.TemplateOptions
		Processes []config.Process
	}{c.Templates, c.TemplateOpts, c.Processes})
	if err != nil {
		return "unknown"
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// await returns when the templates of g may be loaded, or when ctx ends.
func (l *loading) await(ctx context.Context, g *generation) {
	rest := l.begin(g.conf)
	if rest <= 0 {
		return
	}
	l.log.Error(l.why())
	g.engine.HoldAll(l.why())
	if concurrency.Sleep(ctx, rest) == nil {
		l.rested()
		l.log.Info("templates are rendered again, to find out whether the memory suffices now")
	}
}

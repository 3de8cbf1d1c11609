// Package watch renders templates in consul-template's language to files and
// keeps them up to date: it follows what the templates use, executes those whose data
// changed, and replaces and reloads their files with care. Data flows one way:
// sources → store → units → files.
package watch

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"text/template"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/filewatch"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/replace"
)

// Options are what an Engine is made of.
type Options struct {
	Client *consul.Client
	Consul config.Consul // for the functions that consul-template itself fetches for
	Vault  config.Vault
	// Templates are the files to render. Those without a destination come last; what
	// they render goes to Replacer all the same.
	Templates []config.Template
	Allow     config.TemplateOptions
	LookupEnv func(string) (string, bool)
	// Functions are added to those of consul-template, or replace them.
	Functions template.FuncMap
	// Others is how many queries of other users of the client may block at the same
	// time. The engine leaves them room.
	Others int
	// Params are what the function param gives. Optional: without them it is an error.
	Params Params
	// Replacer brings files to disk, or compares, in a dry run.
	Replacer Replacer
	// LoadLater: a template whose source cannot be read or parsed fails alone, and
	// is tried again, instead of being New's error.
	LoadLater bool
	// Doubt is for how long data stay that are missing after a reset of Consul, because they
	// may come back. Zero: 30 seconds.
	Doubt time.Duration
	// StateDir keeps the snapshot of the last good data; empty: none.
	StateDir string
	// ReadOnly: the snapshot is read, but never written.
	ReadOnly bool
	// Held says why no file may be replaced now; empty: they may. Optional.
	Held func() string
	// Require reports to changed whether what templates require is there, until
	// ctx ends. Optional: without it nothing is required.
	Require func(ctx context.Context, r []config.Requires, changed func(ok bool, why string)) error
	// Slot waits for a slot of a group in the fleet and takes it; limit is how
	// many may hold one, 0 any number, below zero as it is. Optional: without it
	// templates that name a slot are refused.
	Slot func(ctx context.Context, group string, limit int, reason string) (release func(), err error)
	// Stages decides when the files of templates with a stage are replaced. Optional:
	// without it they are not replaced at all.
	Stages Stager
	// Rendered is called with each job that replaced files: how long it took since
	// the change reached this host. Optional; it must not block.
	Rendered func(Rendered)
	// Loaded is called once, when all templates were executed with their data and that is
	// saved, or as far as they can be: what the start takes in memory is over. Optional.
	Loaded func()
	// Changed is called when Status may have changed. Optional; it must not block.
	Changed func()
	Log     hclog.Logger
}

// Params are the effective params of this host's member.
type Params interface {
	// Watch calls handle with the params, or why they cannot be read, and again
	// whenever either changes, until ctx ends. At most paramsCost of its queries
	// block at a time.
	Watch(ctx context.Context, handle func(profile.Params, error)) error
}

// Replacer is what the engine needs of package replace.
type Replacer interface {
	Replace(ctx context.Context, u replace.Unit) (replace.Outcome, error)
}

// Rendered is one job's end.
type Rendered struct {
	Unit      string
	Changed   int           // files replaced
	Took      time.Duration // from the change's arrival until the files were replaced
	Reloaded  int           // reload commands that succeeded
	Err       error         // why the files are not as the data says
	Failed    bool          // Err is that of a template's execution
	Templates int           // executed
}

// Engine renders templates. Its methods may be called while Run runs.
type Engine struct {
	o        Options
	opts     *options
	units    []*unit
	store    *store
	index    map[string][]*unit // dependency id → its users
	wanted   map[string]*dependency
	sources  *sources
	plain    *queue
	commands *queue
	done     chan job
	changes  chan batch
	gates    chan gate
	pings    chan struct{}
	slots    map[string]int // of fleet slots that templates name: how many may hold one
	slotNews chan slotNews
	looping  atomic.Bool
	settle   map[string]time.Time // doubted dependencies
	refused  map[string]int       // dependencies whose data was too much for their templates; its size
	saver    *saver
	places   []templatePlace // of the templates, in the order of the configuration
	editNews chan edit
	edits    *filewatch.Watcher // nil while the engine does not follow
	past     *snapshot          // of an earlier process, until all units were rendered; nil: none
	inFlight int
	// unrendered is the number of units that were not rendered yet.
	unrendered int
	replan     time.Time // when sources are to be brought in line; zero: they are
	stirred    time.Time // when a job last began or ended
	begun      time.Time
	absent     bool // Consul did not answer when it was last asked
	once       bool // Once runs
	loaded     loadedState

	mu       sync.Mutex
	order    map[string]int
	statuses []published // in the order of the configuration
}

// templatePlace is where a template of the configuration is.
type templatePlace struct {
	unit *unit
	tmpl *tmpl
}

// Bounds of an execution where the configuration names none.
const (
	defaultRenderTimeout = 10 * time.Second
	defaultStaleAfter    = 5 * time.Minute
	defaultMaxOutput     = 64 << 20
	defaultMaxData       = 64 << 20
)

// bounds is o with those of an execution that the configuration does not name.
func bounds(o config.TemplateOptions) config.TemplateOptions {
	o.RenderTimeout = cmp.Or(o.RenderTimeout, defaultRenderTimeout)
	o.StaleAfter = cmp.Or(o.StaleAfter, defaultStaleAfter)
	o.MaxOutput = cmp.Or(o.MaxOutput, defaultMaxOutput)
	o.MaxData = cmp.Or(o.MaxData, defaultMaxData)
	return o
}

// New reads and parses the templates; the error names the one that it is about.
func New(o Options) (*Engine, error) {
	if o.LookupEnv == nil {
		o.LookupEnv = func(string) (string, bool) { return "", false }
	}
	o.Allow = bounds(o.Allow)
	plain, commands := &queue{limit: maxPlainJobs}, &queue{limit: maxCommandJobs}
	opts := &options{TemplateOptions: o.Allow, LookupEnv: o.LookupEnv, Functions: o.Functions, Params: o.Params != nil}
	units, err := newUnits(o.Templates, opts, o.LoadLater, plain, commands)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		o: o, opts: opts, units: units, store: newStore(cmp.Or(o.Doubt, doubtReset)),
		index: map[string][]*unit{}, wanted: map[string]*dependency{},
		plain: plain, commands: commands,
		done: make(chan job), changes: make(chan batch), gates: make(chan gate), pings: make(chan struct{}),
		editNews: make(chan edit),
		slots:    limits(o.Templates), slotNews: make(chan slotNews),
		settle: map[string]time.Time{}, refused: map[string]int{}, order: map[string]int{}, statuses: make([]published, len(o.Templates)),
	}
	for i := range o.Templates {
		c := &o.Templates[i]
		if c.Slot != "" && o.Slot == nil {
			return nil, fmt.Errorf("template %q: slot %q cannot be taken: this version of jorc has no fleet slots", c.Name, c.Slot)
		}
		e.order[c.Name] = i
		e.statuses[i].jobState = StateWaiting
		e.statuses[i].Status = Status{Name: c.Name, Destination: c.Destination, Together: c.Together, Stage: stageName(o.Templates, c), State: StateWaiting, Since: time.Now()}
		e.statuses[i].Reported = c.Report || e.statuses[i].Stage != ""
	}
	e.places = make([]templatePlace, len(o.Templates))
	for _, u := range units {
		for _, t := range u.templates {
			i := e.order[t.conf.Name]
			e.places[i], t.status = templatePlace{u, t}, &e.statuses[i]
		}
	}
	e.saver = &saver{dir: o.StateDir, log: o.Log}
	if o.ReadOnly {
		e.saver.dir = ""
	}
	return e, nil
}

// Run renders and follows until ctx ends, then returns nil. It waits for jobs
// that run; their commands are bounded by their timeouts.
func (e *Engine) Run(ctx context.Context) error { return e.run(ctx, false) }

// Once returns when every template was rendered once, or has failed for a
// reason that waiting does not fix. What failed, or what is still waited for
// when ctx ends, is the error.
func (e *Engine) Once(ctx context.Context) error { return e.run(ctx, true) }

// Ping returns nil when the engine's loop, which must be running, has answered.
func (e *Engine) Ping(ctx context.Context) error {
	select {
	case e.pings <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// gate is news of what a unit requires.
type gate struct {
	unit *unit
	ok   bool
	why  string
}

// begin makes all units due and starts what watches their requirements.
func (e *Engine) begin(ctx context.Context, helpers *sync.WaitGroup) {
	past, err := loadSnapshot(e.o.StateDir)
	if err != nil {
		e.o.Log.Warn(err.Error())
	}
	e.past = past
	if past != nil {
		e.store.remember(past.Data, past.Indexes)
	}
	e.unrendered = len(e.units)
	e.sources = &sources{
		client: e.o.Client, changes: e.changes, log: e.o.Log,
		foreign: &foreignSource{consul: e.o.Consul, vault: e.o.Vault},
		params:  e.o.Params,
		rights:  newRights(e.o.Client), places: share(e.o.Client.Stats().Places, e.o.Others),
		running: map[string]*watcher{}, maxData: e.o.Allow.MaxData, users: e.users,
	}
	if e.o.Vault.TokenFile != "" {
		helpers.Go(func() { e.sources.foreign.followToken(ctx, e.o.Log) })
	}
	now := time.Now()
	e.begun = now
	for _, u := range e.units {
		for _, t := range u.templates {
			if past != nil {
				t.accepted, t.restored = past.Accepted[t.conf.Name], past.Accepted[t.conf.Name] != nil
				if sum, ok := past.Written[t.conf.Name]; ok {
					t.written = &sum
				}
			}
		}
		u.touch(now.Add(-u.wait.Min))
		if r := requirements(u); len(r) > 0 && e.o.Require != nil {
			u.blocked = "its requirements have not been checked yet"
			helpers.Go(func() { e.watchGate(ctx, u, r) })
		}
		u.queue.reschedule(u)
	}
}

// share is how many of the queries that may block at the same time templates take:
// with one loop more than there are places, all have to take turns.
func share(all, others int) int { return max(all/4, all-max(2, all/7, others)) }

func requirements(u *unit) []config.Requires {
	var all []config.Requires
	for _, t := range u.templates {
		all = append(all, t.conf.Requires...)
	}
	return all
}

func (e *Engine) watchGate(ctx context.Context, u *unit, r []config.Requires) {
	err := e.o.Require(ctx, r, func(ok bool, why string) {
		select {
		case e.gates <- gate{unit: u, ok: ok, why: why}:
		case <-ctx.Done():
		}
	})
	if err != nil && ctx.Err() == nil {
		e.o.Log.Error("what a template requires cannot be watched", "unit", u.name, "error", err)
	}
}

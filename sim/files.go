package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consulmodel"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/watch"
)

// stageName is the stage of the file that all hosts have, and contentKey the key that it is made of.
const (
	stageName  = "app"
	contentKey = "sim/content"
)

var filesChange = cluster.FilesChange(stageName)

// filled is what the key says.
type filled struct {
	Content string `json:"content"`
}

func contentOf(c *consul.Client) kv.Doc[filled] {
	return kv.NewDoc[filled](kv.New(c, "jorc/default"), contentKey, 1)
}

// stageOf is how new content reaches the hosts of a seed.
func stageOf(seed uint64) config.Stage {
	r := chance(seed, "stage")
	s := config.Stage{
		Name: stageName, MaxParallel: strconv.Itoa(1 + r.IntN(2)), Canary: r.IntN(2), ZoneByZone: r.IntN(4) == 0,
		MinHealthy: 10 * time.Second, NodeDeadline: time.Minute, OnUnhealthy: config.OnUnhealthyRestore,
	}
	if r.IntN(4) == 0 {
		s.OnUnhealthy = config.OnUnhealthyStop
	}
	return s
}

// file is the file of a host. It outlives the host's agents.
type file struct {
	h    *host
	path string

	disk sync.Mutex // held while it is replaced: a host is killed before that or after it

	// Guarded by the network's mutex.
	content string // empty: the file is absent
	before  string // the content before that
	tries   int
	spoiled bool // with the content a check fails
}

// replaced is how one instance of an agent replaces the file.
type replaced struct {
	*file
	l *link
	r *replace.Replacer
}

// Replace implements stage.Replacer.
func (f replaced) Replace(ctx context.Context, u replace.Unit) (o replace.Outcome, err error) {
	f.l.thaw()
	f.disk.Lock()
	defer f.disk.Unlock()
	if f.l.dead.Load() {
		return o, errDead
	}
	o, err = f.r.Replace(ctx, u)
	if err == nil && len(o.Changed) > 0 {
		f.l.change(func(m *consulmodel.Model) { f.became(m, string(u.Files[0].Data), u.Gate == nil) })
	}
	return o, err
}

// became notes what is in the file now. restored: the host brought back what was there before.
func (f *file) became(m *consulmodel.Model, content string, restored bool) {
	n := f.h.world.net
	f.h.world.check.filed(f.h, content, restored)
	f.before, f.content = f.content, content
	f.tries++
	r := chance(n.seed, fmt.Sprint(f.h.name, " content ", content, " ", f.tries))
	f.spoiled = n.failing && (r.IntN(10) == 0 || chance(n.seed, "bad content "+content).IntN(5) == 0)
	n.trace("%s has the content %q, restored %v, spoiled %v", f.h.name, content, restored, f.spoiled)
	f.h.checked(m)
}

// lost notes that the host's disk was wiped.
func (f *file) lost() error {
	err := os.RemoveAll(f.path)
	f.h.world.net.change(func(m *consulmodel.Model) {
		f.content, f.before, f.spoiled = "", "", false
		f.h.checked(m)
	})
	return err
}

// follow brings the file to the content that operators ask for until ctx ends, as the template engine does. dir is where the host
// keeps its records.
func (f *file) follow(ctx context.Context, l *link, client *consul.Client, a *agent.Simulated, dir string, clock durable.Clock) error {
	conf := stageOf(l.seed)
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	r := replaced{f, l, replace.New(dir, []string{}, f.h.world.logger(l.name))}
	hosts := stage.NewHosts(dir, clock, f.h.world.logger(l.name))
	hosts.Begin(stage.Files{Replacer: r, Compare: r.r.Compare}, []config.Stage{conf})
	var following sync.WaitGroup
	defer following.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wanted concurrency.Latest[string]
	following.Go(func() {
		_ = contentOf(client).Watch(ctx, func(u kv.Update[filled]) { // ends with ctx
			if u.Err == nil && u.Entry.Exists {
				wanted.Set(u.Entry.Value.Content)
			}
		})
	})
	following.Go(func() {
		for ctx.Err() == nil {
			content, err := wanted.Wait(ctx, func(c string) bool { return c != "" })
			if err != nil {
				return
			}
			changes := hosts.Changes()
			f.ask(ctx, hosts, r, conf, content)
			other, over := context.WithCancel(ctx)
			following.Go(func() {
				defer over()
				_, _ = wanted.Wait(other, func(c string) bool { return c != content }) // or other has ended
			})
			select {
			case <-other.Done():
			case <-changes:
			}
			over()
		}
	})
	return a.RunStages(ctx, hosts, []config.Stage{conf})
}

// ask replaces the file, if the host may.
func (f *file) ask(ctx context.Context, hosts *stage.Hosts, r replaced, conf config.Stage, content string) {
	files := f.files(content)
	s := watch.Staged{
		Stage: conf, Unit: stageName, Files: files, Content: watch.ContentDigest(files),
		Inputs: []watch.Input{{ID: "key " + contentKey, Name: "key " + contentKey, Digest: inputOf(content)}},
	}
	taken := false
	_, err := r.Replace(ctx, replace.Unit{Name: s.Unit, Files: s.Files, Gate: func(ctx context.Context) (func(), error) {
		err := hosts.Take(ctx, s)
		taken = err == nil
		return nil, err
	}})
	hosts.Replaced(s, taken, err)
}

func (f *file) files(content string) []replace.File {
	return []replace.File{{Name: stageName, Destination: f.path, Data: []byte(content)}}
}

// digestOf is what grants to this host say of a content.
func (f *file) digestOf(content string) string { return watch.ContentDigest(f.files(content)) }

// inputOf is what reports of all hosts say of a content.
func inputOf(content string) string {
	return watch.ContentDigest([]replace.File{{Data: []byte(content)}})
}

// filed are the events of operators who change the file, and of the stage.
var filed = []string{"content", "stage resumed", "stage given up"}

// contents are what operators ask for: the first one when the fleet begins, the last one when faults are over.
var contents = []string{"first", "a", "b", "c", "d", "e", "f", "final"}

// fileEvent makes one of them.
func (w *world) fileEvent(r *rand.Rand) event {
	n, who, content := r.IntN(10), r.IntN(64), contents[1+r.IntN(len(contents)-2)]
	by := cluster.Hold{By: "op", Reason: "sim"}
	switch {
	case n < 6:
		return w.op("content", "content "+content, func(ctx context.Context) error { return w.operator.fill(ctx, content) })
	case n < 9:
		return w.op("stage resumed", "resume the stage", func(ctx context.Context) error {
			_, err := w.operator.stages.Resume(ctx, stageName, "", by)
			return err
		})
	}
	return w.op("stage given up", fmt.Sprintf("give a host up (%d) for the stage", who), func(ctx context.Context) error {
		_, err := stage.GiveUp(ctx, w.operator.cluster, w.hosts[who%len(w.hosts)].name, "op", "sim")
		return err
	})
}

// staged reports whether the hosts have the stage.
func (o Options) staged() bool {
	return !o.Without["stage"] && (len(o.Dense) == 0 || slices.ContainsFunc(o.Dense, func(kind string) bool { return slices.Contains(filed, kind) }))
}

// fill asks for a content of the file.
func (o *operator) fill(ctx context.Context, content string) error {
	_, err := contentOf(o.client).Update(ctx, func(kv.Entry[filled]) (filled, bool, error) { return filled{content}, true, nil })
	return err
}

// resumeStage approves what is stopped, if anything is.
func (o *operator) resumeStage(ctx context.Context) error {
	_, err := o.stages.Resume(ctx, stageName, "", cluster.Hold{By: "op"})
	if errors.Is(err, stage.ErrNotStopped) {
		return nil
	}
	return err
}

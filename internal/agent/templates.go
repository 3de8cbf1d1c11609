package agent

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/supervise"
	"github.com/jorc/jorc/internal/watch"
)

// TemplateReports is when a host reports problems of its templates to its cluster.
type TemplateReports struct {
	// LongWait is for how long a template waits before that is a problem. Default 5 min.
	LongWait time.Duration
	// Pause is the time after a report until the next one. It doubles with each report up
	// to MaxPause, and is Pause again after twice MaxPause without a report. Defaults 1 min
	// and 15 min: a template that fails and recovers all the time costs few writes. The end
	// of a problem is reported at once.
	Pause, MaxPause time.Duration
}

func (r TemplateReports) orDefault() TemplateReports {
	return TemplateReports{cmp.Or(r.LongWait, 5*time.Minute), cmp.Or(r.Pause, time.Minute), cmp.Or(r.MaxPause, 15*time.Minute)}
}

// settleTemplates is for how long changes of templates are gathered: one change of a
// key fails or fixes many.
const settleTemplates = 5 * time.Second

// reportTemplates keeps the problems of templates in the host's report until ctx ends.
func (p *part) reportTemplates(ctx context.Context) error {
	pause := concurrency.NewBackoff(p.templateReports.Pause, p.templateReports.MaxPause)
	settle := min(settleTemplates, p.templateReports.Pause)
	var reported []cluster.TemplateProblem
	for last := time.Now(); ctx.Err() == nil; {
		all, next := templateProblems(p.templates(), p.templateReports.LongWait, time.Now())
		if reflect.DeepEqual(all, reported) {
			if _ = concurrency.SleepUnless(ctx, p.templatesChanged.C(), next); ctx.Err() == nil {
				_ = concurrency.Sleep(ctx, settle) // the loop's condition notices ctx's end
			}
			continue
		}
		if time.Since(last) > 2*p.templateReports.MaxPause {
			pause.Reset()
		}
		_ = concurrency.Retry(ctx, concurrency.NewBackoff(firstReport, lastReport), func(ctx context.Context) error {
			// After an outage of Consul what was so during it may be over.
			all, _ = templateProblems(p.templates(), p.templateReports.LongWait, time.Now())
			p.templateProblems.Set(all)
			_, err := p.report.Change(ctx, func(d cluster.Report) (cluster.Report, error) {
				return d.WithTemplates(all), nil
			})
			return err
		}, func(err error, _ time.Duration) {
			p.log.Warn("cannot report problems of templates, will retry", "error", err)
		}) // the loop's condition notices ctx's end
		reported, last = all, time.Now()
		p.pauseReports(ctx, pause.Next(), settle, all)
	}
	return nil
}

// pauseReports waits for d until the next report, or until a problem that was reported is
// gone: an operator who repaired a template looks for that.
func (p *part) pauseReports(ctx context.Context, d, settle time.Duration, reported []cluster.TemplateProblem) {
	for until := time.Now().Add(d); ctx.Err() == nil && time.Now().Before(until); {
		_ = concurrency.SleepUnless(ctx, p.templatesChanged.C(), time.Until(until))
		_ = concurrency.Sleep(ctx, min(settle, max(0, time.Until(until)))) // the loop's condition notices ctx's end
		now, _ := templateProblems(p.templates(), p.templateReports.LongWait, time.Now())
		remains := func(old cluster.TemplateProblem) bool {
			return slices.ContainsFunc(now, func(p cluster.TemplateProblem) bool { return p.Name == old.Name })
		}
		if slices.ContainsFunc(reported, func(old cluster.TemplateProblem) bool { return !remains(old) }) {
			return
		}
	}
}

// noProblem is the pause without a change when no template waits.
const noProblem = time.Hour

// templateProblems returns the templates that failed, are stale, or have waited for longer
// than long. Without a change others follow after next.
func templateProblems(all []watch.Status, long time.Duration, now time.Time) (problems []cluster.TemplateProblem, next time.Duration) {
	next = noProblem
	for _, s := range all {
		p := cluster.TemplateProblem{Name: s.Name, Since: s.Since}
		if process, ok := supervise.ProcessOf(s.Name); ok {
			p.Name = "environment of process " + process
		}
		if !s.StaleAt.IsZero() {
			next = min(next, s.StaleAt.Sub(now))
		}
		switch {
		case s.State != watch.StateWaiting && s.Failure != "":
			p.State, p.Detail = cluster.TemplateFailed, s.Failure
		case s.State == watch.StateStale:
			p.State, p.Detail = cluster.TemplateStale, firstOf(s.Stale)
		case s.State != watch.StateWaiting && !s.StaleAt.IsZero():
			continue
		case s.State != watch.StateWaiting || s.Queued || len(s.Waiting) == 0:
			continue
		case now.Sub(s.Since) < long:
			next = min(next, long-now.Sub(s.Since))
			continue
		default:
			p.State, p.Detail = cluster.TemplateWaiting, firstOf(s.Waiting)
		}
		problems = append(problems, p)
	}
	return problems, next
}

// firstOf is the first of things, and how many there are.
func firstOf(things []string) string {
	if len(things) == 1 {
		return things[0]
	}
	return fmt.Sprintf("%d things, of them %s", len(things), things[0])
}

package agent

import (
	"errors"

	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/watch"
	"github.com/jorc/jorc/internal/web"
)

// rendered counts a job of the template engine.
func (a *Agent) rendered(r watch.Rendered) {
	a.metrics.Observe(web.Job{Took: r.Took, Changed: r.Changed, Reloaded: r.Reloaded, Failed: kindOf(r)})
}

func kindOf(r watch.Rendered) web.Kind {
	var check *replace.CheckError
	var reload *replace.ReloadError
	switch {
	case r.Err == nil, errors.Is(r.Err, watch.ErrHeld):
		return ""
	case r.Failed:
		return web.KindRender
	case errors.As(r.Err, &check):
		return web.KindCheck
	case errors.As(r.Err, &reload):
		return web.KindReload
	}
	return web.KindReplace
}

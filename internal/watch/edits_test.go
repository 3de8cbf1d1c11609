package watch_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/watch"
)

func onEdit(what string) func(*config.Template) {
	return func(c *config.Template) { c.OnEdit = what }
}

func (h *host) write(name, content string) {
	h.t.Helper()
	if err := os.WriteFile(h.path(name), []byte(content), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// wantMode waits until a file has a mode.
func (h *host) wantMode(name string, want fs.FileMode) {
	h.t.Helper()
	consultest.Eventually(h.t, fmt.Sprintf("%s to have mode %o", name, want), func(context.Context) error {
		info, err := os.Stat(h.path(name))
		if err == nil && info.Mode().Perm() != want {
			err = fmt.Errorf("it has %o", info.Mode().Perm())
		}
		return err
	})
}

// TestEditsAreRestored: a file that another program changes in any way is what its
// template says again, without any change in Consul. The status reports it.
func TestEditsAreRestored(t *testing.T) {
	t.Parallel()
	h := newSharedHost(t)
	h.put("k", "v")
	// One template for each way: edits that follow each other are restored after pauses.
	ways := map[string]func(name string){
		"write":     func(name string) { h.write(name, "by hand") },
		"truncate":  func(name string) { h.must(os.Truncate(h.path(name), 0)) },
		"same-size": func(name string) { h.write(name, "V") },
		"remove":    func(name string) { h.must(os.Remove(h.path(name))) },
		"rename": func(name string) {
			h.write(name+".tmp", "by hand")
			h.must(os.Rename(h.path(name+".tmp"), h.path(name)))
		},
		"move away": func(name string) { h.must(os.Rename(h.path(name), h.path(name+".moved"))) },
		"link": func(name string) {
			h.write(name+".target", "by hand")
			h.must(os.Symlink(h.path(name+".target"), h.path(name+".link")))
			h.must(os.Rename(h.path(name+".link"), h.path(name))) // the engine may be faster than two steps
		},
	}
	var templates []config.Template
	for name := range ways {
		templates = append(templates, h.tmpl(name, `{{ key "k" }}`, onEdit(config.OnEditRestore)))
	}
	templates = append(templates, h.tmpl("mode", `{{ key "k" }}`, func(c *config.Template) { c.Perms = "0640" }),
		h.tmpl("own mode", `{{ key "k" }}`), h.tmpl("linked", `{{ key "k" }}`))
	h.must(os.Mkdir(h.path("elsewhere"), 0o755))
	h.write("elsewhere/file", "")
	h.must(os.Symlink(h.path("elsewhere/file"), h.path("linked")))
	e, _ := h.run(templates...)
	for _, c := range templates {
		h.want(c.Name, "v")
	}
	for name, edit := range ways {
		edit(name)
		h.want(name, "v")
		wantStatus(t, e, name, "with the edit", func(s watch.Status) bool {
			return s.State == watch.StateRendered && strings.Contains(s.Edited, "changed by another program, 1 time ") && strings.Contains(s.Edited, "restored at")
		})
	}
	h.must(os.Chmod(h.path("mode"), 0o666))
	h.wantMode("mode", 0o640)
	h.write("elsewhere/file", "by hand")
	h.want("linked", "v")

	// A file that is removed returns with the mode that it had.
	h.must(os.Chmod(h.path("own mode"), 0o600))
	wantStatus(t, e, "own mode", "looked at", func(s watch.Status) bool { return s.Executions > 2 })
	h.must(os.Remove(h.path("own mode")))
	h.want("own mode", "v")
	h.wantMode("own mode", 0o600)
}

// TestDirectoriesOfEditedFiles: files return with their directory, which is watched
// again.
func TestDirectoriesOfEditedFiles(t *testing.T) {
	t.Parallel()
	h := newSharedHost(t)
	move := func(from, to string) { h.must(os.Rename(h.path(from), h.path(to))) }
	ways := map[string]func(dir string){
		"removed": func(dir string) {
			// The engine may make it again while it is removed, so that it is not empty.
			consultest.Eventually(t, dir+" to be removed", func(context.Context) error { return os.RemoveAll(h.path(dir)) })
		},
		"moved":        func(dir string) { move(dir+"/sub", dir+"/moved") },
		"parent moved": func(dir string) { move(dir, dir+".moved") },
		"replaced": func(dir string) {
			move(dir+"/sub", dir+"/moved")
			if err := os.Mkdir(h.path(dir+"/sub"), 0o755); !errors.Is(err, fs.ErrExist) { // the engine may be faster
				h.must(err)
			}
		},
	}
	var templates []config.Template
	for name := range ways {
		templates = append(templates, h.tmpl(name, "content", func(c *config.Template) {
			c.Destination, c.CreateDirs = h.path(name+"/sub/file"), true
		}))
	}
	e, _ := h.run(templates...)
	for name, way := range ways {
		file := name + "/sub/file"
		h.want(file, "content")
		way(name)
		h.want(file, "content")
		h.write(file, "by hand")
		h.want(file, "content")
	}
	h.write("moved/moved/file", "another file") // is no longer the destination
	for name := range ways {
		wantStatus(t, e, name, "rendered", inState(watch.StateRendered))
	}
}

// TestEditsGoThroughCheckReloadAndSlot: restoring is a replacement like any other.
func TestEditsGoThroughCheckReloadAndSlot(t *testing.T) {
	t.Parallel()
	h, f := newSharedHost(t), &fleet{free: make(chan struct{})}
	h.edit = func(o *watch.Options) { o.Slot = f.slot }
	log := h.path("log")
	record := func(what string) []string {
		return []string{"sh", "-c", "echo " + what + " >> " + log, "sh", "{{.Staged}}"}
	}
	e, _ := h.run(h.tmpl("t", "content", func(c *config.Template) {
		c.Check, c.Reload, c.Slot, c.MaxParallel = record("check"), record("reload")[:3], "edge", 1
	}), h.tmpl("refused", "content", func(c *config.Template) {
		c.Check = []string{"sh", "-c", "test ! -e " + h.path("veto")}
	}))
	f.free <- struct{}{}
	h.want("log", "check\nreload\n")
	h.want("refused", "content")
	h.write("t", "by hand")
	wantStatus(t, e, "t", "waiting for the slot", func(s watch.Status) bool { return mentions(s.Waiting, `a slot of "edge"`) })
	h.want("t", "by hand")
	f.free <- struct{}{}
	h.want("t", "content")
	h.want("log", "check\nreload\ncheck\nreload\n")

	h.write("veto", "")
	h.write("refused", "by hand")
	wantStatus(t, e, "refused", "refused by its check", inState(watch.StateFailed))
	h.want("refused", "by hand")
	h.must(os.Remove(h.path("veto")))
	h.want("refused", "content")
}

// TestEditsDuringAnOutage: a file is restored from the data that the engine has.
func TestEditsDuringAnOutage(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	h := newHost(t, s)
	h.put("k", "v")
	e, _ := h.run(h.tmpl("edited", `{{ key "k" }}`), h.tmpl("removed", `{{ key "k" }}`))
	h.want("edited", "v")
	h.want("removed", "v")
	s.Stop()
	wantStatus(t, e, "edited", "without Consul", func(s watch.Status) bool { return len(s.Stale) > 0 })
	h.write("edited", "by hand")
	h.must(os.Remove(h.path("removed")))
	h.want("edited", "v")
	h.want("removed", "v")
}

// TestEditsWhileHeld: nothing is restored on a held host; afterwards it is.
func TestEditsWhileHeld(t *testing.T) {
	t.Parallel()
	h := newSharedHost(t)
	var held atomic.Bool
	h.edit = func(o *watch.Options) {
		o.Held = func() string {
			if held.Load() {
				return "by a test"
			}
			return ""
		}
	}
	e, _ := h.run(h.tmpl("t", "content"))
	h.want("t", "content")
	held.Store(true)
	h.write("t", "by hand")
	wantStatus(t, e, "t", "held", func(s watch.Status) bool { return strings.Contains(s.Error, "held by a test") })
	h.want("t", "by hand")
	held.Store(false)
	h.want("t", "content")
}

// TestEditsAreReported: with on_edit = "report" an edit stays, also across a
// restart, until the data changes.
func TestEditsAreReported(t *testing.T) {
	t.Parallel()
	h := newSharedHost(t)
	h.put("k", "v")
	log := &logBuffer{}
	h.edit = func(o *watch.Options) {
		o.Log = hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: log})
	}
	c := h.tmpl("t", `{{ key "k" }}`, onEdit(config.OnEditReport), func(c *config.Template) { c.Perms = "0644" })
	reported := func(s watch.Status) bool {
		return s.State == watch.StateRendered && strings.Contains(s.Edited, `stays until the template's data changes (on_edit = "report")`)
	}
	e, stop := h.run(c)
	h.want("t", "v")
	h.write("t", "by hand")
	wantStatus(t, e, "t", "reported", reported)
	h.want("t", "by hand")
	stop()
	if n := strings.Count(log.String(), "was changed by another program"); n != 1 {
		t.Errorf("%d lines of the log are about the edit, want 1:\n%s", n, log.String())
	}
	e, _ = h.run(c)
	wantStatus(t, e, "t", "reported by the next process", reported)
	h.want("t", "by hand")
	h.write("t", "v")
	wantStatus(t, e, "t", "as it was again", func(s watch.Status) bool { return s.Edited == "" })
	for what, edit := range map[string]func(){
		"mode":    func() { h.must(os.Chmod(h.path("t"), 0o600)) },
		"removal": func() { h.must(os.Remove(h.path("t"))) },
	} {
		edit()
		wantStatus(t, e, "t", "reported: "+what, reported)
		h.must(os.WriteFile(h.path("t"), []byte("v"), 0o644))
		h.must(os.Chmod(h.path("t"), 0o644))
		wantStatus(t, e, "t", "as it was again", func(s watch.Status) bool { return s.Edited == "" })
	}
	h.write("t", "by hand")
	wantStatus(t, e, "t", "reported", reported)
	h.put("k", "w")
	h.want("t", "w")
	wantStatus(t, e, "t", "without the edit", func(s watch.Status) bool { return s.Edited == "" })
}

// TestTwoProgramsEditOneFile: when another program writes the file after every
// restoration, the pauses grow and the status reports it.
func TestTwoProgramsEditOneFile(t *testing.T) {
	t.Parallel()
	h := newSharedHost(t)
	e, _ := h.run(h.tmpl("t", "content"))
	h.want("t", "content")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // the other program
		defer close(done)
		for ctx.Err() == nil {
			if data, err := os.ReadFile(h.path("t")); err == nil && string(data) == "content" || errors.Is(err, fs.ErrNotExist) {
				_ = os.WriteFile(h.path("t"), []byte("other"), 0o644) // it is tried again
			}
			time.Sleep(time.Millisecond)
		}
	}()
	s := wantStatus(t, e, "t", "edited again and again", func(s watch.Status) bool {
		return strings.Contains(s.Edited, "changed 4 times by another program") && strings.Contains(s.Edited, "it is restored at")
	})
	if s.Writes > 4 {
		t.Errorf("%d writes for 4 edits: %+v", s.Writes, s)
	}
	cancel()
	<-done
	h.want("t", "content")
}

// TestOwnReplacementsAreNotEdits: the engine's own writes cause no executions.
func TestOwnReplacementsAreNotEdits(t *testing.T) {
	t.Parallel()
	h := newSharedHost(t)
	h.put("k", "0")
	e, _ := h.run(h.tmpl("t", `{{ key "k" }}`, func(c *config.Template) { c.Reload = []string{"sh", "-c", "sleep 0.1"} }), h.tmpl("marker", "x"))
	h.want("t", "0")
	for i := range 5 {
		h.put("k", fmt.Sprint(i+1))
		h.want("t", fmt.Sprint(i+1))
	}
	// The events of the last write precede those of this edit.
	h.write("marker", "by hand")
	h.want("marker", "x")
	s := wantStatus(t, e, "t", "written six times", func(s watch.Status) bool { return s.Writes == 6 })
	if s.Edited != "" || s.Executions > 9 {
		t.Errorf("the status after 6 writes is %+v", s)
	}
	if _, err := os.Stat(filepath.Join(h.dir, ".t.jorc-new")); err == nil {
		t.Error("a staged file stays behind")
	}
}

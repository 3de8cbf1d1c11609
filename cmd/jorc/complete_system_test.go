//go:build system

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consultest"
)

// TestCompletionInShells: bash, zsh and fish offer commands, and names from Consul,
// at the press of a key; what a name holds is never executed.
func TestCompletionInShells(t *testing.T) {
	t.Parallel()
	program := builtOnce(t)
	s := consultest.Start(t)
	env := onServer(t, s)
	named(t, s, env)
	for name, shell := range map[string]struct {
		setup string   // its configuration, with the directory of the script for %s
		file  string   // of that
		args  []string // that make it read only that
		keys  []string // that ask for candidates
	}{
		"bash": {"PS1='READY '; source %[1]s/_jorc", "bashrc", []string{"--rcfile", "bashrc", "-i"}, []string{"Tab", "Tab", "Tab"}},
		"zsh":  {"PS1='READY '; fpath=(%[1]s $fpath); autoload -U compinit; compinit -u -D", ".zshrc", []string{"-d", "-i"}, []string{"Tab", "Tab"}},
		"fish": {"function fish_prompt; echo -n 'READY '; end; source %[1]s/_jorc", "setup.fish", []string{"-N", "-i", "-C", "source setup.fish"}, []string{"Tab"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{"_jorc": jorc(t, nil, "completion", name).stdout, shell.file: fmt.Sprintf(shell.setup, dir)} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			tmux := inTmux(t, dir, 120, 40, append([]string{name}, shell.args...), []string{
				"PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH"), "HOME=" + dir, "ZDOTDIR=" + dir, consultest.NoConfig,
				"CONSUL_HTTP_ADDR=" + env["CONSUL_HTTP_ADDR"],
			})
			for _, test := range []struct {
				typed string
				want  []string
			}{
				{"jorc update wh", []string{"jorc update why"}},
				{"jorc update why ", []string{"db-1", "web-1", "web-2"}},
				{"jorc update give-up d", []string{"jorc update give-up db-1"}},
				{"jorc cluster members --role ", []string{"leader", "manager", "worker"}},
				{"jorc cluster hold --node d", []string{"--node db-1"}},
				{"jorc cluster join --zone r", []string{"--zone rack-7"}},
				{"jorc service resolve a", []string{"resolve api"}},
				{"jorc cluster show p", []string{"cluster show prod"}},
				{"jorc cluster logs o", []string{"cluster logs old"}},
				{"jorc update trigger ", []string{"v1", "v2"}},
				{"jorc cluster run inst", []string{"cluster run install"}},
			} {
				consultest.Eventually(t, fmt.Sprintf("%q to be completed", test.typed), func(ctx context.Context) error { // Consul may be slow
					tmux.do("respawn-pane", "-k") // a new shell: keys do not reach one that is still completing
					if err := tmux.prompts(ctx); err != nil {
						return err
					}
					tmux.keys("-l", test.typed)
					tmux.keys(shell.keys...)
					return tmux.shows(ctx, test.want...)
				})
			}
		})
	}
	if _, err := os.Stat("/tmp/owned"); err == nil {
		t.Error("the name of a service was executed")
	}
}

// tmuxWindow is a window of a tmux server of its own.
type tmuxWindow struct {
	t      *testing.T
	socket string
}

// inTmux runs a command in a terminal of that size; it ends with the test.
func inTmux(t *testing.T, dir string, columns, rows int, command, environ []string) *tmuxWindow {
	t.Helper()
	w := &tmuxWindow{t, filepath.Join(dir, "tmux")}
	args := []string{"new-session", "-d", "-c", dir, "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows), "--", "env", "-i", "TERM=tmux-256color", "LANG=C.UTF-8"}
	w.do(append(append(args, environ...), command...)...)
	t.Cleanup(func() { w.do("kill-server") })
	w.do("set-option", "-g", "remain-on-exit", "on")
	return w
}

func (w *tmuxWindow) do(args ...string) string {
	w.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-u", "-f", os.DevNull, "-S", w.socket}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Errorf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (w *tmuxWindow) keys(keys ...string) {
	w.t.Helper()
	w.do(append([]string{"send-keys"}, keys...)...)
}

// screen is what the window shows.
func (w *tmuxWindow) screen() string { w.t.Helper(); return w.do("capture-pane", "-p") }

// prompts waits a moment for an empty window with a prompt.
func (w *tmuxWindow) prompts(ctx context.Context) error {
	return w.soon(ctx, func(screen string) error {
		if text := strings.TrimSpace(screen); text != "READY" {
			return fmt.Errorf("no empty prompt:\n%s", text)
		}
		return nil
	})
}

// shows waits a moment for the window to show all of want.
func (w *tmuxWindow) shows(ctx context.Context, want ...string) error {
	return w.soon(ctx, func(screen string) error {
		for _, text := range want {
			if !strings.Contains(screen, text) {
				return fmt.Errorf("no %q in\n%s", text, strings.TrimSpace(screen))
			}
		}
		return nil
	})
}

func (w *tmuxWindow) soon(ctx context.Context, check func(screen string) error) (err error) {
	for range 40 {
		if err = check(w.screen()); err == nil || concurrency.Sleep(ctx, 50*time.Millisecond) != nil {
			break
		}
	}
	return err
}

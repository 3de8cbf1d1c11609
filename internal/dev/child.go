package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/jorc/jorc/internal/command"
)

// stopWithin is how long a child gets to end by itself: a kept Consul to save its state, a jorc
// agent to end its tasks.
const stopWithin = 10 * time.Second

// errPortTaken: another process bound the port first.
var errPortTaken = errors.New("a port was taken meanwhile")

// child is a program of the session. It ends with jorc, also if jorc is killed.
type child struct {
	name string // for messages
	asks bool   // it is asked to end, and gets time for that
	log  string // file
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// startChild starts a program in a process group of its own: Ctrl-C is jorc's to handle. Its output
// goes to dir/file.log. Of jorc's environment it gets PATH only.
func startChild(name, dir, file string, asks bool, args ...string) (*child, error) {
	c := &child{name: name, asks: asks, log: filepath.Join(dir, file+".log"), done: make(chan struct{})}
	if err := c.start(dir, args); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := saveProcess(filepath.Join(dir, file+processSuffix), c.cmd.Process.Pid); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

func (c *child) start(dir string, args []string) error {
	log, err := os.Create(c.log)
	if err != nil {
		return err
	}
	defer log.Close()
	c.cmd = exec.Command(args[0], args[1:]...)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.Env = environ(dir)
	c.cmd.SysProcAttr = command.Attached()
	started := make(chan error)
	go func() {
		defer close(c.done)
		// Pdeathsig comes when the thread ends that started the process, so the
		// thread stays; the child ends with jorc, even if jorc is killed.
		runtime.LockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait() // ProcessState has the result
		}
	}()
	return <-started
}

// environ is the environment of children with a directory of their own.
func environ(dir string) []string { return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir} }

// watch returns an error when the child ends before ctx does.
func (c *child) watch(ctx context.Context) error {
	select {
	case <-c.done:
		return c.ended()
	case <-ctx.Done():
		return nil
	}
}

func (c *child) ended() error {
	tail := c.tail()
	if strings.Contains(tail, "address already in use") {
		return fmt.Errorf("%s (pid %d): %w", c.name, c.cmd.Process.Pid, errPortTaken)
	}
	return fmt.Errorf("%s (pid %d) has ended: %s; %s", c.name, c.cmd.Process.Pid, c.cmd.ProcessState, tail)
}

// tail returns the last lines of the child's log.
func (c *child) tail() string {
	data, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return "it has logged nothing"
	}
	lines := strings.Split(string(data), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return "its log ends with: " + strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// end stops the child and waits until it has exited.
func (c *child) end() {
	if c.asks {
		_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		t := time.NewTimer(stopWithin)
		defer t.Stop()
		select {
		case <-c.done:
		case <-t.C:
		}
	}
	_ = c.cmd.Process.Kill()
	<-c.done
}

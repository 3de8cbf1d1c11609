package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// process is a started program. It ends with the bench, even if the bench is killed.
type process struct {
	name  string
	pid   int
	begun time.Time
	log   string // path of its output

	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	end  time.Time     // valid then, as err
	err  error
}

// start runs a program with its output in a file in dir.
func start(dir, name string, argv []string) (*process, error) {
	return startWith(dir, name, argv, nil)
}

// startWith is start with other variables, and with files from descriptor 3 on.
func startWith(dir, name string, argv, environ []string, files ...*os.File) (*process, error) {
	return startIn(0, dir, name, argv, environ, files...)
}

// startIn is startWith in new namespaces of the kinds that flags name.
func startIn(flags uintptr, dir, name string, argv, environ []string, files ...*os.File) (*process, error) {
	log, err := os.CreateTemp(dir, name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "JORC_CONFIG=" + os.DevNull}, environ...)
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Cloneflags: flags}
	p := &process{name: name, log: log.Name(), cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.done)
		runtime.LockOSThread() // Pdeathsig is sent when the thread that started the process goes away
		p.begun = time.Now()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			p.end = time.Now()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

// kill ends the process and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// wait returns when the process has ended, with its result.
func (p *process) wait(ctx context.Context) (time.Time, error) {
	select {
	case <-p.done:
		if p.err != nil {
			return p.end, p.died()
		}
		return p.end, nil
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}

// died is the error of a process that ended unexpectedly.
func (p *process) died() error {
	return fmt.Errorf("%s ended: %v; its output ends with:\n%s", p.name, p.err, p.tail())
}

func (p *process) tail() []byte {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(data[max(0, len(data)-1500):])
}

// errGone is the error of a process that no longer exists.
var errGone = errors.New("the process has ended")

func (p *process) proc(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(p.pid), name))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return "", fmt.Errorf("%s: %w; its output ends with:\n%s", p.name, errGone, p.tail())
	}
	return string(data), err
}

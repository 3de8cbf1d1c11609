package command

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Attached returns the attributes of a process in a group of its own. Windows does not
// end it with the process that starts it.
func Attached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// attributesOf returns the attributes of a process that leads a group of the console,
// and does not begin before startGroup has put it into its job.
func attributesOf(user string) (*syscall.SysProcAttr, []string, error) {
	if user != "" {
		return nil, nil, fmt.Errorf("%w: commands run as another user (%s) on Linux only", ErrPermission, user)
	}
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED}, nil, nil
}

// group is a running command and its descendants: a job object.
type group struct {
	job    windows.Handle
	leader uint32
	done   chan struct{} // closed when the leader has ended
	killed bool          // has no meaning on Windows
}

// startGroup starts cmd. There is no guard: with one asked for, the kernel ends the
// job when jorc ends, however it ends, because it closes jorc's handle of the job.
func startGroup(cmd *exec.Cmd, guard []string) (*group, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("create a job object: %w", err)
	}
	g := &group{job: job, done: make(chan struct{})}
	if len(guard) > 0 {
		err = endWithHandle(job)
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		g.close()
		return nil, err
	}
	g.leader = uint32(cmd.Process.Pid)
	process, err := g.admit()
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		g.close()
		return nil, err
	}
	go func() {
		defer close(g.done)
		defer func() { _ = windows.CloseHandle(process) }()
		_, _ = windows.WaitForSingleObject(process, windows.INFINITE) // an error: the caller waits for the process itself
	}()
	return g, nil
}

// endWithHandle makes the kernel end a job's processes when its handle is closed.
func endWithHandle(job windows.Handle) error {
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	_, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		return fmt.Errorf("limit a job object: %w", err)
	}
	return nil
}

// admit puts the leader, which has not begun, into the job, and lets it begin.
func (g *group) admit() (process windows.Handle, err error) {
	process, err = windows.OpenProcess(windows.SYNCHRONIZE|windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, g.leader)
	if err != nil {
		return 0, fmt.Errorf("open the process: %w", err)
	}
	if err = windows.AssignProcessToJobObject(g.job, process); err != nil {
		err = fmt.Errorf("put the process into its job: %w", err)
	} else if err = resume(g.leader); err != nil {
		err = fmt.Errorf("let the process begin: %w", err)
	}
	if err != nil {
		_ = windows.CloseHandle(process)
	}
	return process, err
}

// resume lets the threads of a process run.
func resume(pid uint32) error {
	all, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer func() { _ = windows.CloseHandle(all) }()
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(all, &entry); err == nil; err = windows.Thread32Next(all, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return err
		}
		_, err = windows.ResumeThread(thread)
		_ = windows.CloseHandle(thread)
		return err // it has no other thread yet
	}
	return err
}

// terminate asks the processes of the group to end, as Ctrl-Break does.
func (g *group) terminate() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, g.leader)
}

// kill ends the processes of the group.
func (g *group) kill() { _ = windows.TerminateJobObject(g.job, 1) }

func (g *group) close() { _ = windows.CloseHandle(g.job) }

// Guarded is without a meaning on Windows; see startGroup.
func Guarded(_ []string, _, stderr *os.File) int {
	fmt.Fprintln(stderr, "jorc: there are no guards on Windows")
	return ExitCannotRun
}

// SignalNumber returns 0: Windows has no signals for other processes.
func SignalNumber(string) syscall.Signal { return 0 }

// SignalName returns a signal's description.
func SignalName(s syscall.Signal) string { return s.String() }

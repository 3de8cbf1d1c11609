package crashtest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/durable"
)

// childEnv makes a test binary the child of a recording: its value is "name|directory".
const childEnv = "JORC_TEST_RECORD"

// marksEnv names the file that Mark appends to.
const marksEnv = "JORC_TEST_RECORD_MARKS"

// Child runs the function that Record asked for, if this process is the child of a
// recording, and returns its exit code. Tests call it in init, so that it does
// not matter what TestMain does.
func Child(all map[string]func(dir string) error) (code int, child bool) {
	name, dir, child := strings.Cut(os.Getenv(childEnv), "|")
	if !child {
		return 0, false
	}
	write, ok := all[name]
	if !ok {
		log.Printf("no function %q", name)
		return 2, true
	}
	if err := write(dir); err != nil {
		log.Print(err)
		return 1, true
	}
	return 0, true
}

// Mark notes, in a child, that something was promised: a crash after it must not take it
// back. See Crash.Marked.
func Mark(text string) error {
	f, err := os.OpenFile(os.Getenv(marksEnv), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text + "\n")
	return errors.Join(err, f.Close())
}

// Record runs the function of that name (see Child) in a child process, and returns what
// it changed below dir. What is in dir before counts as synced.
func Record(t testing.TB, name, dir string) *Log {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{root: dir, marks: filepath.Join(t.TempDir(), "marks"), ids: map[file]int{}, contents: map[int][]byte{}, threads: map[int]*thread{}}
	if err := os.WriteFile(r.marks, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r.log.begin, err = r.tree(dir); err != nil {
		t.Fatal(err)
	}
	r.log.root = dir
	output := filepath.Join(t.TempDir(), "output")
	done := make(chan error)
	go func() { done <- r.run(name, output) }()
	if err := <-done; err != nil {
		text, _ := os.ReadFile(output)
		t.Fatalf("record %s: %v: %s", name, err, text)
	}
	if len(r.log.changes) == 0 {
		t.Fatalf("record %s: nothing was written below %s", name, dir)
	}
	return &r.log
}

// file is which file it is for the kernel, which uses the numbers of removed files again.
type file struct{ dev, ino uint64 }

func fileOf(info fs.FileInfo) file {
	i := durable.InfoOf(info)
	return file{i.Dev, i.Inode}
}

// recorder follows a process and its children.
type recorder struct {
	root, marks string
	ids         map[file]int // numbers that are never used again
	last        int
	contents    map[int][]byte
	threads     map[int]*thread
	log         Log
}

// thread is a thread between the begin and the end of a system call.
type thread struct {
	finish func(result int64) error // nil: the call changes nothing here
}

// callInfo is struct ptrace_syscall_info of the kernel.
type callInfo struct {
	op   uint8
	_    [3]uint8
	arch uint32
	ip   uint64
	sp   uint64
	nr   uint64 // at the end of a call: its result
	args [6]uint64
}

const (
	callBegins = 1
	callEnds   = 2
)

// run runs the child to its end. A thread is the tracer of a process, so this goroutine
// keeps its thread, which ends with it.
func (r *recorder) run(name, output string) error {
	runtime.LockOSThread()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := os.Create(output)
	if err != nil {
		return err
	}
	defer out.Close()
	child, err := os.StartProcess(self, []string{self, "-test.run=^$"}, &os.ProcAttr{
		Env:   append(os.Environ(), childEnv+"="+name+"|"+r.root, marksEnv+"="+r.marks),
		Files: []*os.File{nil, out, out},
		Sys:   &unix.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		return err
	}
	main := child.Pid
	defer child.Release() // it has been waited for below
	var status unix.WaitStatus
	if _, err := wait4(main, &status, 0); err != nil {
		return err
	}
	r.threads[main] = &thread{}
	const follow = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK |
		unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL
	if err := unix.PtraceSetOptions(main, follow); err != nil {
		return fmt.Errorf("follow the child: %w", err)
	}
	if err := unix.PtraceSyscall(main, 0); err != nil {
		return err
	}
	for {
		pid, err := r.wait(main, &status)
		if err != nil {
			return err
		}
		if status.Exited() || status.Signaled() {
			delete(r.threads, pid)
			if pid != main {
				continue
			}
			if status.Signaled() || status.ExitStatus() != 0 {
				return fmt.Errorf("the child ended: signal %v, exit status %d", status.Signal(), status.ExitStatus())
			}
			return nil
		}
		if r.threads[pid] == nil {
			r.threads[pid] = &thread{}
		}
		signal := 0
		switch stop := status.StopSignal(); {
		case stop == unix.SIGTRAP|0x80:
			if err := r.stopped(pid); err != nil {
				return err
			}
		case stop == unix.SIGTRAP, stop == unix.SIGSTOP: // of the tracing itself; a new thread begins with a stop
		default:
			signal = int(stop)
		}
		if err := unix.PtraceSyscall(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
}

// wait waits for the child and what it starts. A child of another test that this thread started before it became the
// recorder's is left to that test.
func (r *recorder) wait(main int, status *unix.WaitStatus) (int, error) {
	for {
		var next unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &next, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT|unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		}
		pid := int(*(*int32)(unsafe.Add(unsafe.Pointer(&next), siginfoPID)))
		if pid == main || r.threads[pid] != nil || !ofAnotherTest(pid) {
			return wait4(pid, status, 0)
		}
		// Its owner may be long in waiting for it, and the kernel names it first until then.
		for pid := range r.threads {
			if got, err := wait4(pid, status, unix.WNOHANG); err == nil && got == pid {
				return pid, nil
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// ofAnotherTest reports whether a process was started by this one and is not traced: only the recorder's own child, and what
// that starts, are.
func ofAnotherTest(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return true // it is gone: another test waited for it
	}
	field := func(name string) (n int) {
		_, after, _ := strings.Cut(string(text), "\n"+name+":")
		_, _ = fmt.Sscan(after, &n) // 0 matches nothing
		return n
	}
	return field("Tgid") == pid && field("PPid") == os.Getpid()
}

// siginfoPID is where the process ID stands in siginfo_t, on systems of 64 bits.
const siginfoPID = 16

// wait4 waits for children of this thread only: those of other tests are not its own.
func wait4(pid int, status *unix.WaitStatus, options int) (int, error) {
	for {
		pid, err := unix.Wait4(pid, status, unix.WALL|unix.WNOTHREAD|options, nil)
		if !errors.Is(err, unix.EINTR) {
			return pid, err
		}
	}
}

// stopped is at the begin and at the end of each system call.
func (r *recorder) stopped(pid int) error {
	th := r.threads[pid]
	var info callInfo
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(pid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0); errno != 0 {
		if errno == unix.ESRCH {
			return nil // it was killed meanwhile
		}
		return fmt.Errorf("which system call it is: %w", errno)
	}
	switch info.op {
	case callBegins:
		th.finish = r.begins(pid, info.nr, info.args)
	case callEnds:
		finish := th.finish
		th.finish = nil
		if result := int64(info.nr); finish != nil && result >= 0 {
			return finish(result)
		}
	}
	return nil
}

// begins notes what has to be known before a call, and returns what its success means;
// nil when it means nothing.
func (r *recorder) begins(pid int, nr uint64, a [6]uint64) func(int64) error {
	at := len(r.log.changes)
	switch nr {
	case unix.SYS_OPENAT:
		if a[2]&(unix.O_CREAT|unix.O_TRUNC) == 0 {
			return nil
		}
		p, ok := r.place(pid, a[0], a[1])
		if !ok {
			return nil
		}
		_, err := os.Lstat(p.path())
		created := errors.Is(err, fs.ErrNotExist)
		return func(fd int64) error {
			if created {
				return r.created(p)
			}
			return r.content(pid, uint64(fd))
		}
	case unix.SYS_MKDIRAT:
		if p, ok := r.place(pid, a[0], a[1]); ok {
			return func(int64) error { return r.created(p) }
		}
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_PWRITEV, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_SENDFILE:
		return r.writes(pid, a[0])
	case unix.SYS_COPY_FILE_RANGE, unix.SYS_SPLICE:
		return r.writes(pid, a[2])
	case unix.SYS_FCHMOD, unix.SYS_FCHOWN, unix.SYS_FSETXATTR, unix.SYS_FREMOVEXATTR:
		if path, ok := r.opened(pid, a[0]); ok {
			return func(int64) error { return r.mode(path) }
		}
	case unix.SYS_FCHMODAT, unix.SYS_FCHOWNAT:
		if p, ok := r.place(pid, a[0], a[1]); ok {
			return func(int64) error { return r.mode(p.path()) }
		}
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		if path, ok := r.opened(pid, a[0]); ok {
			return func(int64) error {
				id, _, err := r.id(path)
				r.add(change{kind: synced, file: id, before: at})
				return err
			}
		}
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		return r.renames(pid, a)
	case unix.SYS_LINKAT:
		return r.links(pid, a)
	case unix.SYS_UNLINKAT:
		if p, ok := r.place(pid, a[0], a[1]); ok {
			return func(int64) error {
				r.add(change{kind: removed, dir: p.dir, name: p.name, path: p.path()})
				return nil
			}
		}
	case unix.SYS_SYMLINKAT:
		if p, ok := r.place(pid, a[1], a[2]); ok {
			return func(int64) error { return fmt.Errorf("symbolic link %s: they are not recorded", p.path()) }
		}
	}
	return nil
}

func (r *recorder) renames(pid int, a [6]uint64) func(int64) error {
	from, ok := r.place(pid, a[0], a[1])
	to, into := r.place(pid, a[2], a[3])
	if !ok && !into {
		return nil
	}
	id, _, err := r.id(from.path())
	return func(int64) error {
		if !ok || !into || err != nil {
			return fmt.Errorf("rename of %s to %s: one of them is not below %s: %w", from.path(), to.path(), r.root, err)
		}
		r.add(change{kind: renamed, file: id, fromDir: from.dir, fromName: from.name, dir: to.dir, name: to.name, path: to.path()})
		return nil
	}
}

func (r *recorder) links(pid int, a [6]uint64) func(int64) error {
	from, ok := r.place(pid, a[0], a[1])
	to, into := r.place(pid, a[2], a[3])
	if !into {
		return nil
	}
	id, _, err := r.id(from.path())
	return func(int64) error {
		if !ok || err != nil {
			return fmt.Errorf("link to %s: %s is not below %s: %w", to.path(), from.path(), r.root, err)
		}
		r.add(change{kind: named, file: id, dir: to.dir, name: to.name, path: to.path()})
		return nil
	}
}

// place is a name below the recorded directory.
type place struct {
	dir     int
	dirPath string
	name    string
}

func (p place) path() string { return filepath.Join(p.dirPath, p.name) }

// place finds what a directory's descriptor and the address of a path name.
func (r *recorder) place(pid int, dirfd, address uint64) (place, bool) {
	path, err := readText(pid, uintptr(address))
	if err != nil || path == "" {
		return place{}, false
	}
	if !filepath.IsAbs(path) {
		from := "cwd"
		if int32(dirfd) != unix.AT_FDCWD {
			from = "fd/" + strconv.Itoa(int(int32(dirfd)))
		}
		dir, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, from))
		if err != nil {
			return place{}, false
		}
		path = filepath.Join(dir, path)
	}
	p := place{dirPath: filepath.Dir(path), name: filepath.Base(path)}
	if !r.below(p.dirPath) {
		return p, false
	}
	id, _, err := r.id(p.dirPath)
	p.dir = id
	return p, err == nil
}

func (r *recorder) below(path string) bool {
	return path == r.root || strings.HasPrefix(path, r.root+"/")
}

// opened returns a path of a file of the child that is below the recorded directory. The
// path leads to the file also after it was renamed or removed.
func (r *recorder) opened(pid int, fd uint64) (string, bool) {
	link := fmt.Sprintf("/proc/%d/fd/%d", pid, int32(fd))
	path, err := os.Readlink(link)
	return link, err == nil && r.below(strings.TrimSuffix(path, " (deleted)"))
}

// id returns the number of the file at a path.
func (r *recorder) id(path string) (id int, info fs.FileInfo, err error) {
	stat := os.Lstat
	if strings.HasPrefix(path, "/proc/") {
		stat = os.Stat
	}
	if info, err = stat(path); err != nil {
		return 0, nil, err
	}
	key := fileOf(info)
	if id = r.ids[key]; id == 0 {
		r.last++
		id = r.last
		r.ids[key] = id
	}
	return id, info, nil
}

// created notes a new file or directory.
func (r *recorder) created(p place) error {
	info, err := os.Lstat(p.path())
	if err != nil {
		return err
	}
	delete(r.ids, fileOf(info)) // of a file that was removed
	id, _, err := r.id(p.path())
	r.add(change{kind: made, file: id, isDir: info.IsDir(), mode: info.Mode().Perm()})
	r.add(change{kind: named, file: id, dir: p.dir, name: p.name, path: p.path()})
	return err
}

func (r *recorder) writes(pid int, fd uint64) func(int64) error {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, int32(fd)))
	switch {
	case err != nil:
	case path == r.marks:
		return func(int64) error {
			text, err := os.ReadFile(r.marks)
			lines := strings.Fields(string(text))
			if len(lines) > 0 {
				r.add(change{kind: marked, name: lines[len(lines)-1]})
			}
			return err
		}
	case r.below(strings.TrimSuffix(path, " (deleted)")):
		return func(int64) error { return r.content(pid, fd) }
	}
	return nil
}

// content notes what is in an open file now.
func (r *recorder) content(pid int, fd uint64) error {
	path := fmt.Sprintf("/proc/%d/fd/%d", pid, int32(fd))
	id, info, err := r.id(path)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	data, err := os.ReadFile(path)
	before := r.contents[id]
	if err != nil || bytes.Equal(data, before) {
		return err
	}
	kept := 0
	for kept < min(len(data), len(before)) && data[kept] == before[kept] {
		kept++
	}
	r.contents[id] = data
	r.add(change{kind: filled, file: id, data: data, kept: kept})
	return nil
}

func (r *recorder) mode(path string) error {
	id, info, err := r.id(path)
	if err == nil {
		r.add(change{kind: modeSet, file: id, mode: info.Mode().Perm()})
	}
	return err
}

func (r *recorder) add(c change) {
	c.path = strings.TrimPrefix(c.path, r.root+"/")
	r.log.changes = append(r.log.changes, c)
}

// readText reads a text that ends with a zero from a process.
func readText(pid int, address uintptr) (string, error) {
	if address == 0 {
		return "", nil
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return "", err
	}
	defer f.Close()
	buf := make([]byte, unix.PathMax)
	n, err := f.ReadAt(buf, int64(address))
	text, _, ended := strings.Cut(string(buf[:n]), "\x00")
	if !ended {
		return "", fmt.Errorf("path of process %d: %w", pid, err)
	}
	return text, nil
}

// tree reads the directory as it is before the child begins.
func (r *recorder) tree(dir string) (*disk, error) {
	d := newDisk()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		id, info, err := r.id(path)
		if err != nil {
			return err
		}
		n := &inode{isDir: e.IsDir(), mode: info.Mode().Perm(), names: map[string]int{}}
		if !e.IsDir() {
			if n.data, err = os.ReadFile(path); err != nil {
				return err
			}
			r.contents[id] = n.data
		}
		d.inodes[id] = n
		if path == dir {
			d.root = id
			return nil
		}
		parent, _, err := r.id(filepath.Dir(path))
		d.inodes[parent].names[filepath.Base(path)] = id
		return err
	})
	return d, err
}

//go:build unix

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// standardEditor edits a document if neither EDITOR nor VISUAL is set.
const standardEditor = "vi"

// editorArgs is the command line by which editor, a shell's command, edits file.
func editorArgs(editor, file string) []string {
	return []string{"/bin/sh", "-c", editor + ` "$1"`, "sh", file}
}

// become replaces the process by a program; it returns only when it cannot.
func become(path string, args, environ []string) error { return syscall.Exec(path, args, environ) }

// understandsEscapes reports whether a terminal obeys escape sequences; all do.
func understandsEscapes(*os.File) bool { return true }

// readAndWrite reports whether a file was opened for both.
func readAndWrite(f *os.File) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE == unix.O_RDWR
}

// keepWriteErrors makes a write to a closed pipe an error of the command: Go ends the
// process if that happens to descriptor 1 or 2, but not to a copy of it.
func keepWriteErrors(f *os.File, descriptor int) *os.File {
	fd, err := unix.FcntlInt(uintptr(descriptor), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return f
	}
	return os.NewFile(uintptr(fd), f.Name())
}

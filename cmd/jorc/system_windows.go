package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
)

// standardEditor edits a document if neither EDITOR nor VISUAL is set.
const standardEditor = "notepad"

// editorArgs is the command line by which editor edits file: a program, or one with
// arguments.
func editorArgs(editor, file string) []string {
	if _, err := exec.LookPath(editor); err == nil {
		return []string{editor, file}
	}
	return append(strings.Fields(editor), file)
}

// understandsEscapes makes a console obey escape sequences, and reports whether
// it can.
func understandsEscapes(f *os.File) bool {
	handle, mode := windows.Handle(f.Fd()), uint32(0)
	if err := windows.GetConsoleMode(handle, &mode); err != nil {
		return false
	}
	return windows.SetConsoleMode(handle, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}

// readAndWrite reports whether a file was opened for both, as Go opens the null device
// in place of a closed stdout; on Windows it does not.
func readAndWrite(*os.File) bool { return false }

// keepWriteErrors makes a write to a closed pipe an error of the command; on Windows it
// is one.
func keepWriteErrors(f *os.File, _ syscall.Handle) *os.File { return f }

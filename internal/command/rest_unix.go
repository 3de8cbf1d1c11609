//go:build unix

package command

import (
	"io"
	"os"
	"syscall"
	"time"
)

// pipeSize is how much a pipe holds, in bytes.
const pipeSize = 64 << 10

// copyRest copies what is in the pipe, without waiting for more: on a busy machine the
// time for reading may be over before anything was read.
func copyRest(r *os.File, to io.Writer) {
	if err := r.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	raw, err := r.SyscallConn()
	if err != nil {
		return
	}
	buf, have := make([]byte, pipeSize), 0
	_ = raw.Read(func(fd uintptr) (done bool) { // an error means that nothing can be read
		for have < len(buf) {
			n, err := syscall.Read(int(fd), buf[have:])
			if err == syscall.EINTR {
				continue
			}
			if err != nil || n <= 0 {
				break
			}
			have += n
		}
		return true
	})
	_, _ = to.Write(buf[:have]) // never fails
}

package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/durable"
)

const (
	modeOwn   = 0o600
	modeGroup = 0o660
)

// socket is a unix socket in a directory of this user's. The lock beside it says that its agent runs.
type socket struct {
	net.Listener
	path string
	dir  directory
	lock *durable.Lock
}

// listen makes the socket at path in place of one without a listener.
func listen(ctx context.Context, path string) (_ *socket, err error) {
	parent := filepath.Dir(path)
	if err := durable.MkdirAll(parent, 0o755); err != nil {
		return nil, err
	}
	if err := durable.CheckOwner(parent); err != nil {
		return nil, err
	}
	s := &socket{path: path}
	if s.lock, err = durable.TryLock(path + ".lock"); err != nil {
		if errors.Is(err, durable.ErrLocked) {
			err = fmt.Errorf("another jorc agent listens there: %w: set socket in the control block to another path", err)
		}
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.lock.Unlock())
		}
	}()
	if s.dir, err = openDirectory(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.dir.close()
		}
	}()
	if err := s.removeStale(ctx); err != nil {
		return nil, err
	}
	// The mode of the socket is that of its file from the first moment on.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), modeOwn) }), err)
	}}
	bound, err := config.Listen(ctx, "unix", s.dir.path(path))
	if err != nil {
		return nil, cause(err)
	}
	bound.(*net.UnixListener).SetUnlinkOnClose(false)
	s.Listener = bound
	return s, nil
}

// removeStale removes the socket of an agent that was killed.
func (s *socket) removeStale(ctx context.Context) error {
	info, err := os.Lstat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("there is a file that is not a socket: remove it, or set socket in the control block to another path")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", s.dir.path(s.path))
	if err == nil {
		_ = conn.Close()
		return errors.New("another program listens there: set socket in the control block to another path")
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return cause(err)
	}
	return os.Remove(s.path)
}

// admit lets the members of a group connect; with an empty name it does nothing.
func (s *socket) admit(group string) error {
	if group == "" {
		return nil
	}
	gid, err := GroupID(group)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Lchown(s.path, -1, gid), os.Chmod(s.path, modeGroup)); err != nil {
		return err
	}
	for dir := filepath.Dir(s.path); ; dir = filepath.Dir(dir) {
		var info unix.Stat_t
		if err := unix.Stat(dir, &info); err != nil {
			return err
		}
		if info.Mode&0o001 == 0 && (info.Mode&0o010 == 0 || int(info.Gid) != gid) {
			return fmt.Errorf("its members cannot enter the directory %s: set socket in the control block to a path that they can reach, such as /run/jorc/control.sock", dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// close removes the socket, and then lets another agent make its own.
func (s *socket) close() error {
	defer s.dir.close()
	err := s.Listener.Close()
	if errors.Is(err, net.ErrClosed) { // the server has closed it
		err = nil
	}
	if removed := os.Remove(s.path); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return errors.Join(err, s.lock.Unlock())
}

// directory is an open directory. Paths of sockets must have less than 108 bytes, and one through an open
// directory has.
type directory struct{ fd int }

func openDirectory(path string) (directory, error) {
	dir := filepath.Dir(path)
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return directory{}, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return directory{fd}, nil
}

func (d directory) path(path string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.fd, filepath.Base(path))
}

func (d directory) close() { _ = unix.Close(d.fd) } // nothing was written

// dial connects to the socket at path.
func dial(ctx context.Context, path string) (net.Conn, error) {
	dir, err := openDirectory(path)
	if err != nil {
		return nil, cause(err)
	}
	defer dir.close()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", dir.path(path))
	if err != nil {
		return nil, cause(err)
	}
	return conn, nil
}

// cause returns the system's error: the message names the socket by its real path.
func cause(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}

// credentials says which process is at the other end of a connection.
func credentials(c net.Conn) peer {
	p := peer{-1, -1}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return p
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return p
	}
	_ = raw.Control(func(fd uintptr) { // closed: nothing is known
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			p = peer{int(cred.Uid), int(cred.Pid)}
		}
	})
	return p
}

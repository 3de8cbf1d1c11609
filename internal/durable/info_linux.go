package durable

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// FileInfo returns what an open file is.
func FileInfo(f *os.File) (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Info{}, err
	}
	return infoOf(&st), nil
}

// InfoOf returns the Info of what package os found out about a file.
func InfoOf(info fs.FileInfo) Info {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Info{}
	}
	return infoOf(&unix.Stat_t{
		Dev: st.Dev, Ino: st.Ino, Nlink: st.Nlink, Mode: st.Mode, Uid: st.Uid, Gid: st.Gid, Size: st.Size,
		Mtim: unix.Timespec(st.Mtim), Ctim: unix.Timespec(st.Ctim),
	})
}

func infoOf(st *unix.Stat_t) Info {
	i := Info{
		Dev: st.Dev, Inode: st.Ino, Links: uint64(st.Nlink), Mode: st.Mode & permBits, UID: st.Uid, GID: st.Gid,
		Size: st.Size, Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano(),
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		i.Type = fs.ModeDir
	case unix.S_IFLNK:
		i.Type = fs.ModeSymlink
	default:
		i.Type = fs.ModeIrregular
	}
	return i
}

// Chmod sets the twelve permission bits of an open file.
func Chmod(f *os.File, mode uint32) error { return unix.Fchmod(int(f.Fd()), mode) }

// OpenName is the flag with which Open needs no right to read.
const OpenName = unix.O_PATH

// Allocate reserves the first bytes of a file on its disk. The error wraps
// errors.ErrUnsupported where the file system cannot do that.
func Allocate(f *os.File, size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return errors.ErrUnsupported
	}
	return err
}

// FreeSpace returns how much space a directory's file system has.
func FreeSpace(dir string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Space{}, err
	}
	return Space{Bytes: st.Bavail * uint64(st.Bsize), Files: st.Files, FilesFree: st.Ffree}, nil
}

// The modes of flock.
const (
	lockNow       lockMode = unix.LOCK_EX | unix.LOCK_NB
	lockSharedNow lockMode = unix.LOCK_SH | unix.LOCK_NB
	lockWait      lockMode = unix.LOCK_EX
	unlock        lockMode = unix.LOCK_UN
)

func flock(f *os.File, how lockMode) error {
	for {
		err := unix.Flock(int(f.Fd()), int(how))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

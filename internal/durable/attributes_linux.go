package durable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	permBits = 0o7777
	setID    = unix.S_ISUID | unix.S_ISGID
	aclName  = "system.posix_acl_access"
)

// Attributes are the owner of a file and what users may do with it.
type Attributes struct {
	Mode     uint32 // with an ACL, the group's bits are its mask
	UID, GID int    // -1: as the process makes files

	old    bool // they are an existing file's
	acl    acl
	xattrs []xattr
}

type xattr struct {
	name  string
	value []byte
}

// ReadAttributes reads the attributes of a file that is going to be replaced.
// shared says that another user may have made its name, so that its set-id bits
// are not kept: they would be another program's. lost names what cannot be read.
func ReadAttributes(f *os.File, shared bool) (a Attributes, lost []string, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return a, nil, err
	}
	a = Attributes{Mode: st.Mode & permBits, UID: int(st.Uid), GID: int(st.Gid), old: true}
	if shared {
		a.Mode &^= setID
	}
	value, err := getxattr(f, aclName)
	if err == nil {
		a.acl, err = parseACL(value)
	}
	if err != nil && !hasNone(err) {
		return a, nil, fmt.Errorf("ACL: %w", err)
	}
	list, err := listxattr(f)
	if err != nil && !hasNone(err) {
		return a, []string{fmt.Sprintf("extended attributes: %v", err)}, nil
	}
	for _, name := range list {
		if !carried(name) {
			continue
		}
		value, err := getxattr(f, name)
		if err != nil {
			lost = append(lost, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		a.xattrs = append(a.xattrs, xattr{name, value})
	}
	return a, lost, nil
}

// carried reports whether an extended attribute belongs to the file's name. The
// others belong to its content (capabilities, signatures) or to the file system.
func carried(name string) bool {
	return strings.HasPrefix(name, "user.") || name == "security.selinux" || strings.HasPrefix(name, "security.SMACK64")
}

// Apply gives a new file, which only its owner can open, the attributes. lost
// names the attributes that the file cannot have; the mode is narrowed where a lost ACL
// allowed less.
func (a Attributes) Apply(f *os.File) (lost []string, err error) {
	fd := int(f.Fd())
	for _, x := range a.xattrs {
		if err := unix.Fsetxattr(fd, x.name, x.value, 0); err != nil {
			lost = append(lost, fmt.Sprintf("%s: %v", x.name, err))
		}
	}
	if a.UID >= 0 || a.GID >= 0 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return lost, err
		}
		if a.UID >= 0 && a.UID != int(st.Uid) || a.GID >= 0 && a.GID != int(st.Gid) {
			if err := f.Chown(a.UID, a.GID); err != nil {
				return lost, err
			}
		}
	}
	mode := a.Mode
	switch {
	case a.acl != nil:
		if err := unix.Fsetxattr(fd, aclName, a.acl.withMode(mode).bytes(), 0); err != nil {
			lost = append(lost, fmt.Sprintf("ACL: %v", err))
			mode = a.acl.narrow(mode)
		}
	case a.old:
		// The directory's default ACL is for new files; this one takes another's place.
		if err := unix.Fremovexattr(fd, aclName); err != nil && !hasNone(err) {
			return lost, fmt.Errorf("ACL: %w", err)
		}
	}
	return lost, Chmod(f, mode) // last: a change of owner clears set-id bits
}

// hasNone reports whether there is no such attribute, or can be none.
func hasNone(err error) bool {
	return errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}

// getxattr reads an attribute, also of a file that was opened with O_PATH.
func getxattr(f *os.File, name string) ([]byte, error) {
	return sized(func(dest []byte) (int, error) {
		n, err := unix.Fgetxattr(int(f.Fd()), name, dest)
		if errors.Is(err, unix.EBADF) {
			return unix.Getxattr(opened(f), name, dest)
		}
		return n, err
	})
}

func listxattr(f *os.File) ([]string, error) {
	list, err := sized(func(dest []byte) (int, error) {
		n, err := unix.Flistxattr(int(f.Fd()), dest)
		if errors.Is(err, unix.EBADF) {
			return unix.Listxattr(opened(f), dest)
		}
		return n, err
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00"), nil
}

// opened is a name of an open file, whatever its path leads to now.
func opened(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// sized calls read with a buffer that is large enough.
func sized(read func([]byte) (int, error)) ([]byte, error) {
	for {
		size, err := read(nil)
		if err != nil || size == 0 {
			return nil, err
		}
		buf := make([]byte, size)
		n, err := read(buf)
		if errors.Is(err, unix.ERANGE) {
			continue // it has grown
		}
		return buf[:max(n, 0)], err
	}
}

// acl is a POSIX access control list, as the kernel keeps it.
type acl []aclEntry

type aclEntry struct {
	tag, perm uint16
	id        uint32
}

// Tags of entries; see linux/posix_acl_xattr.h.
const (
	aclVersion  = 2
	aclOwner    = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclGroup    = 0x08
	aclMask     = 0x10
	aclOther    = 0x20
)

func parseACL(b []byte) (acl, error) {
	if len(b) < 4 || (len(b)-4)%8 != 0 || binary.LittleEndian.Uint32(b) != aclVersion {
		return nil, errors.New("unknown format")
	}
	list := acl{}
	for e := range slices.Chunk(b[4:], 8) {
		list = append(list, aclEntry{binary.LittleEndian.Uint16(e), binary.LittleEndian.Uint16(e[2:]), binary.LittleEndian.Uint32(e[4:])})
	}
	return list, nil
}

func (l acl) bytes() []byte {
	b := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range l {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

func (l acl) has(tag uint16) bool {
	return slices.ContainsFunc(l, func(e aclEntry) bool { return e.tag == tag })
}

// withMode is the list after chmod: the group's bits become its mask.
func (l acl) withMode(mode uint32) acl {
	next := slices.Clone(l)
	for i := range next {
		switch e := &next[i]; {
		case e.tag == aclOwner:
			e.perm = uint16(mode >> 6 & 7)
		case e.tag == aclMask, e.tag == aclGroupObj && !l.has(aclMask):
			e.perm = uint16(mode >> 3 & 7)
		case e.tag == aclOther:
			e.perm = uint16(mode & 7)
		}
	}
	return next
}

// narrow is a mode that allows no user more than the list does with that mode:
// the group what its own entry allows, and group and others nothing that is
// denied to a user or group with an entry.
func (l acl) narrow(mode uint32) uint32 {
	group, other := mode>>3&7, mode&7
	mask := group
	for _, e := range l {
		perm := uint32(e.perm)
		switch e.tag {
		case aclGroupObj:
			group &= perm
		case aclUser:
			group &= perm
			other &= perm & mask
		case aclGroup:
			other &= perm & mask
		}
	}
	return mode&^0o77 | group<<3 | other
}

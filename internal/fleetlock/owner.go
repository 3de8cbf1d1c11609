package fleetlock

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// established is the state TCP_ESTABLISHED.
const established = "01"

// errGone is the error of a connection that its process has closed. The kernel shows such a connection as root's.
var errGone = errors.New("its connection is closed")

// owner returns the user whose process has the connection from an address to another.
//
// A process that closes its connection no longer owns it: the row then has inode 0 and user 0. So the row must
// be that of an open connection, and be the same when it is read again: what was closed between the reading of
// its user and that of its inode is not open any longer.
func owner(from, to netip.AddrPort) (uid int, err error) {
	first, err := row(from, to)
	if err != nil {
		return 0, err
	}
	again, err := row(from, to)
	if err != nil {
		return 0, err
	}
	if first != again {
		return 0, errGone
	}
	return first.uid, nil
}

// connection is a row of a table.
type connection struct {
	uid   int
	inode uint64
}

// row finds the row of a connection in the kernel's tables of TCP connections. A connection of IPv4 addresses may be in
// either.
func row(from, to netip.AddrPort) (connection, error) {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		c, err := rowIn(table, from, to)
		if !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
	}
	return connection{}, errors.New("the kernel's table does not have its connection")
}

// rowIn finds a row of one table. Its error wraps fs.ErrNotExist when the table, or the row, does not exist.
func rowIn(table string, from, to netip.AddrPort) (connection, error) {
	f, err := os.Open(table)
	if err != nil {
		return connection{}, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode …
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || !isAddress(fields[1], from) || !isAddress(fields[2], to) {
			continue
		}
		uid, uidErr := strconv.ParseUint(fields[7], 10, 32)
		inode, inodeErr := strconv.ParseUint(fields[9], 10, 64)
		if err := errors.Join(uidErr, inodeErr); err != nil {
			return connection{}, fmt.Errorf("%s: %w", table, err)
		}
		if fields[3] != established || inode == 0 {
			return connection{}, errGone
		}
		return connection{int(uid), inode}, nil
	}
	if err := lines.Err(); err != nil {
		return connection{}, err
	}
	return connection{}, fs.ErrNotExist
}

// isAddress reports whether a cell of a table is an address: the words of the IP address in the byte order of the
// machine, and the port.
func isAddress(cell string, want netip.AddrPort) bool {
	address, port, found := strings.Cut(cell, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	if !found || err != nil || uint16(n) != want.Port() {
		return false
	}
	var raw []byte
	for ; len(address) >= 8; address = address[8:] {
		word, err := strconv.ParseUint(address[:8], 16, 32)
		if err != nil {
			return false
		}
		raw = binary.NativeEndian.AppendUint32(raw, uint32(word))
	}
	got, ok := netip.AddrFromSlice(raw)
	return ok && address == "" && got.Unmap() == want.Addr().Unmap().WithZone("")
}

package main

import (
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of utime and stime in /proc: USER_HZ, which Linux has
// fixed at 100 for all programs.
const clockTick = 10 * time.Millisecond

// cpu is the processor time that the process has used.
func (p *process) cpu() (time.Duration, error) {
	stat, err := p.proc("stat")
	if err != nil {
		return 0, err
	}
	// The second field, the name, may hold spaces: fields are counted behind it.
	f := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	var ticks int64
	for _, s := range f[11:13] { // fields 14 and 15
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", p.pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// memory is the resident set now and at its highest, in MB.
func (p *process) memory() (rss, peak float64, err error) {
	v, err := p.status("VmRSS", "VmHWM")
	return v["VmRSS"], v["VmHWM"], err
}

// mapped is the part of the resident set that is pages of files: the program itself. The
// kernel can drop them at any time and read them again.
func (p *process) mapped() (float64, error) {
	v, err := p.status("RssFile", "RssShmem") // the latter for a program on tmpfs
	return v["RssFile"] + v["RssShmem"], err
}

// status returns sizes of /proc/PID/status by their names, in MB.
func (p *process) status(names ...string) (map[string]float64, error) {
	status, err := p.proc("status")
	if err != nil {
		return nil, err
	}
	sizes := map[string]float64{}
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		if !slices.Contains(names, name) {
			continue
		}
		kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		if err != nil {
			return nil, fmt.Errorf("/proc/%d/status: %s: %w", p.pid, name, err)
		}
		sizes[name] = kb * 1024 / 1e6
	}
	return sizes, nil
}

// established is the state TCP_ESTABLISHED in /proc/net/tcp.
const established = "01"

// sockets counts the established connections of the process to address.
func (p *process) sockets(address string) (int, error) {
	remote, err := procAddress(address)
	if err != nil {
		return 0, err
	}
	table, err := p.proc("net/tcp")
	if err != nil {
		return 0, err
	}
	own, err := p.socketInodes()
	if err != nil {
		return 0, err
	}
	n := 0
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > 9 && f[2] == remote && f[3] == established && own[f[9]] {
			n++
		}
	}
	return n, nil
}

// socketInodes are the inodes of the sockets that the process has open.
func (p *process) socketInodes() (map[string]bool, error) {
	dir := filepath.Join("/proc", fmt.Sprint(p.pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, errGone)
	}
	inodes := make(map[string]bool, len(entries))
	for _, e := range entries {
		link, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if inode, ok := strings.CutPrefix(link, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes, nil
}

// procAddress is an IPv4 address as /proc/net/tcp writes it: the bytes of the
// address in the machine's order, then the port.
func procAddress(address string) (string, error) {
	a, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return "", err
	}
	ip := slices.Clone(a.IP.To4())
	slices.Reverse(ip) // little-endian machines
	return strings.ToUpper(hex.EncodeToString(ip)) + fmt.Sprintf(":%04X", a.Port), nil
}

package workflow

import (
	"os"
	"strings"
)

// boot names one life of the host: the kernel's boot id, and when its first
// process began, which tells lives of a container apart.
type boot struct {
	ID   string `json:"id"`
	Init string `json:"init"`
}

func currentBoot() boot {
	var b boot
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		b.ID = strings.TrimSpace(string(id))
	}
	if stat, err := os.ReadFile("/proc/1/stat"); err == nil {
		b.Init = startTime(string(stat))
	}
	return b
}

// startTime is the 22nd field of /proc/PID/stat; the second is in parentheses
// and may hold anything.
func startTime(stat string) string {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// same tells whether the host was not restarted in between. What is not known
// of either counts as equal.
func (b boot) same(o boot) bool {
	equal := func(x, y string) bool { return x == "" || y == "" || x == y }
	return equal(b.ID, o.ID) && equal(b.Init, o.Init)
}

package workflow

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/command"
)

// markName is the variable by which the processes of an attempt are known,
// whatever group or session they went to. One that cleared its environment
// (sudo, env -i) and left its group is not.
const markName = "JORC_ATTEMPT"

// process is a running process that carries a mark.
type process struct {
	pid  int
	name string
}

func (p process) String() string { return fmt.Sprintf("%s (pid %d)", p.name, p.pid) }

// marked finds the processes that carry mark and whose number is among the pids;
// never this one.
func marked(mark string, among pids) ([]process, error) {
	pids, err := among.running()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	var found []process
	for _, pid := range pids {
		if pid == self || !carries(pid, mark) {
			continue
		}
		comm, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
		found = append(found, process{pid, strings.TrimSpace(string(comm))})
	}
	slices.SortFunc(found, func(a, b process) int { return a.pid - b.pid })
	return found, nil
}

// carries reports whether a process runs and was started with mark.
func carries(pid int, mark string) bool {
	env, err := environ(pid)
	if err != nil {
		return false
	}
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if value, ok := bytes.CutPrefix(kv, []byte(markName+"=")); ok {
			return string(value) == mark
		}
	}
	return false
}

// execTime is how long the environment of a process may be incomplete because it
// executes another program; execPause is the pause before it is read again.
const (
	execTime  = time.Second
	execPause = time.Millisecond
)

// environ reads a process's environment; nil if it has none. While a process
// executes a program, the kernel shows no environment or the begin of one: it is
// read again until it has the length that /proc/PID/stat gives, or is empty twice.
func environ(pid int) ([]byte, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	var empty uint64
	for deadline := time.Now().Add(execTime); ; time.Sleep(execPause) {
		env, err := os.ReadFile(dir + "/environ")
		if err != nil {
			return nil, err
		}
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			return nil, err
		}
		start, end, memory := environArea(stat)
		switch {
		case !memory, // a zombie or a thread of the kernel
			start < end && uint64(len(env)) == end-start,
			start == end && start == empty && start != 0,
			time.Now().After(deadline):
			return env, nil
		case start == end:
			empty = start
		}
	}
}

// environArea returns from /proc/PID/stat where a process's environment begins
// and ends, and whether the process has memory.
func environArea(stat []byte) (start, end uint64, memory bool) {
	const vsize, envStart, envEnd = 20, 47, 48 // counted from the field after the name
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= envEnd {
		return 0, 0, false
	}
	start, _ = strconv.ParseUint(fields[envStart], 10, 64) // the kernel writes numbers
	end, _ = strconv.ParseUint(fields[envEnd], 10, 64)
	return start, end, fields[vsize] != "0"
}

// pids are the numbers above after, up to last. The zero value is all numbers.
type pids struct{ after, last int }

// fewPIDs is how many numbers are tried one by one: that costs less than to list
// all processes of the host.
const fewPIDs = 64

// running returns the numbers that processes may have at present.
func (p pids) running() (all []int, err error) {
	if p.last > 0 && p.last-p.after <= fewPIDs {
		for pid := p.after + 1; pid <= p.last; pid++ {
			all = append(all, pid)
		}
		return all, nil
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = proc.Close() }() // only read
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && (p.last == 0 || pid > p.after && pid <= p.last) {
			all = append(all, pid)
		}
	}
	return all, nil
}

// pidWindow returns the numbers that are given out from now until the result is
// called, so that looking for what a task left behind costs little on a busy host.
func pidWindow() func() pids {
	before := lastPID()
	return func() pids {
		after := lastPID()
		if before == 0 || after < before {
			return pids{} // unknown, or the numbers started again
		}
		return pids{before, after}
	}
}

// lastPID is the number that was given out last; 0 when that is not known.
func lastPID() int {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	n, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		return 0
	}
	return n
}

// killTime is how long killed processes have to go.
const killTime = 10 * time.Second

// killMarked kills all processes that carry mark and returns when they are
// gone, with what they were.
func killMarked(mark string) ([]process, error) {
	var killed []process
	var deadline time.Time
	for {
		found, err := marked(mark, pids{})
		if err != nil {
			return killed, fmt.Errorf("look for processes of the last attempt: %w", err)
		}
		if len(found) == 0 {
			return killed, nil
		}
		switch now := time.Now(); {
		case deadline.IsZero():
			deadline = now.Add(killTime)
		case now.After(deadline):
			return killed, fmt.Errorf("%v of the last attempt cannot be killed", found)
		}
		for _, p := range found {
			if !slices.Contains(killed, p) {
				killed = append(killed, p)
			}
			if err := command.Kill(p.pid, func() bool { return carries(p.pid, mark) }, time.Until(deadline)); err != nil {
				return killed, fmt.Errorf("kill %v of the last attempt: %w", p, err)
			}
		}
	}
}

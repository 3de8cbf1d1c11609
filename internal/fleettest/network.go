//go:build linux

package fleettest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaces is where ip keeps the names of network namespaces.
const namespaces = "/run/netns"

// common is what the names of all namespaces of this package begin with; the
// namespace of processes and the process that made them and a number follow:
// runs that know nothing of one another may share the names.
const common = "jorc-fleet-"

var networks atomic.Int64

// network is a bridge in its own namespace with a port for each machine. It changes
// no address or route of the real machine and is isolated from other networks.
type network struct {
	prefix string // of the names of its namespaces
	spaces []string
}

// newNetwork connects the machines, after it removed what dead processes left.
func newNetwork(machines []*Machine) (*network, error) {
	if err := removeStale(); err != nil {
		return nil, err
	}
	begin, err := ours()
	if err != nil {
		return nil, err
	}
	n := &network{prefix: fmt.Sprintf("%s%d-%d-", begin, os.Getpid(), networks.Add(1))}
	var names, ports strings.Builder
	ports.WriteString("link add br0 type bridge\nlink set br0 up\n")
	for i, m := range machines {
		m.space = space(n.prefix + m.Name)
		m.port = fmt.Sprintf("port%d", i)
		n.spaces = append(n.spaces, string(m.space))
		fmt.Fprintf(&names, "netns add %s\n", m.space)
		fmt.Fprintf(&ports, "link add %s type veth peer name eth0 netns %s\nlink set %[1]s master br0 up\n", m.port, m.space)
	}
	n.spaces = append(n.spaces, n.prefix+"switch")
	fmt.Fprintf(&names, "netns add %s\n", n.prefix+"switch")
	err = errors.Join(batch(names.String()), batch(ports.String(), "-n", n.prefix+"switch"))
	for _, m := range machines {
		m.at = space(n.prefix + "switch")
		up := fmt.Sprintf("link set lo up\naddr add %s/24 dev eth0\nlink set eth0 up\n", m.IP)
		err = errors.Join(err, batch(up, "-n", string(m.space)), m.chains())
	}
	if err != nil {
		return nil, errors.Join(err, n.remove())
	}
	return n, nil
}

// remove ends what runs in the namespaces, and deletes them with all their
// interfaces and rules.
func (n *network) remove() error {
	var errs []error
	for _, name := range n.spaces {
		errs = append(errs, removeSpace(name))
	}
	return errors.Join(errs...)
}

func removeSpace(name string) error {
	if _, err := os.Stat(filepath.Join(namespaces, name)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	space(name).killAll()
	err := run("ip", "netns", "delete", name)
	if _, gone := os.Stat(filepath.Join(namespaces, name)); errors.Is(gone, os.ErrNotExist) {
		return nil // another run may have been faster
	}
	return err
}

// ours is what the names begin with of all networks whose processes can be seen
// from here.
func ours() (string, error) {
	var pids unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &pids); err != nil {
		return "", fmt.Errorf("namespace of processes: %w", err)
	}
	return fmt.Sprintf("%s%d-", common, pids.Ino), nil
}

// removeStale removes the networks of processes that have ended, and what
// still runs in them.
func removeStale() error {
	begin, err := ours()
	if err != nil {
		return err
	}
	all, err := filepath.Glob(filepath.Join(namespaces, begin+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range all {
		name := filepath.Base(path)
		number, _, _ := strings.Cut(strings.TrimPrefix(name, begin), "-")
		pid, err := strconv.Atoi(number)
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			errs = append(errs, removeSpace(name))
		}
	}
	return errors.Join(errs...)
}

// batch runs a batch of ip commands.
func batch(commands string, flags ...string) error {
	return runWith(commands, "ip", append(flags, "-batch", "-")...)
}

func run(name string, args ...string) error { return runWith("", name, args...) }

func runWith(stdin, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, bytes.TrimSpace(out))
	}
	return nil
}

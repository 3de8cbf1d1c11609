//go:build unix

package command

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// group is a running command and its descendants: its process group.
type group struct {
	*ending
	id   int
	held *os.File // the guard ends the group when this is closed; nil: no guard
}

// startGroup starts cmd, through guard if that is not empty.
func startGroup(cmd *exec.Cmd, guard []string) (*group, error) {
	var held *os.File
	var err error
	if len(guard) > 0 {
		held, err = addGuard(cmd, guard)
	}
	if err == nil {
		err = cmd.Start()
	}
	for _, f := range cmd.ExtraFiles {
		_ = f.Close()
	}
	g := &group{held: held}
	if err != nil {
		g.close()
		return nil, err
	}
	g.id = cmd.Process.Pid
	g.ending = exit(g.id)
	return g, nil
}

// Attached returns the attributes of a process in a group of its own. Linux ends it with
// the thread that starts it.
func Attached() *syscall.SysProcAttr { return endWithThread(&syscall.SysProcAttr{Setpgid: true}) }

// terminate asks the processes of the group to end.
func (g *group) terminate() {
	_ = syscall.Kill(-g.id, syscall.SIGTERM)
	// A stopped process handles the signal only when it is continued.
	_ = syscall.Kill(-g.id, syscall.SIGCONT)
}

// kill ends the processes of the group.
func (g *group) kill() { _ = syscall.Kill(-g.id, syscall.SIGKILL) }

func (g *group) close() {
	if g.held != nil {
		_ = g.held.Close()
	}
}

// attributesOf returns the attributes of a process of user name, which leads a group,
// and the variables that describe the user.
func attributesOf(name string) (*syscall.SysProcAttr, []string, error) {
	cred, env, err := credential(name)
	return &syscall.SysProcAttr{Setpgid: true, Credential: cred}, env, err
}

// credential returns the credential of user name and the variables that describe
// the user. The credential is nil for the empty name and for jorc's own user.
func credential(name string) (*syscall.Credential, []string, error) {
	if name == "" {
		return nil, nil, nil
	}
	u, err := LookupUser(name)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrPermission, err)
	}
	uid, err := parseID(u.Uid)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: user %s: %w", ErrPermission, name, err)
	}
	env := []string{"HOME=" + u.HomeDir, "USER=" + u.Username, "LOGNAME=" + u.Username}
	if int(uid) == os.Geteuid() {
		return nil, env, nil
	}
	if os.Geteuid() != 0 {
		return nil, nil, fmt.Errorf("%w: only root can run commands as user %s", ErrPermission, name)
	}
	gid, err := parseID(u.Gid)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: user %s: %w", ErrPermission, name, err)
	}
	ids, err := u.GroupIds()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: groups of user %s: %w", ErrPermission, name, err)
	}
	cred := &syscall.Credential{Uid: uid, Gid: gid}
	for _, id := range ids {
		g, err := parseID(id)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: groups of user %s: %w", ErrPermission, name, err)
		}
		cred.Groups = append(cred.Groups, g)
	}
	return cred, env, nil
}

func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

// SignalNumber returns the signal of a name ("SIGTERM"); 0 if it does not exist.
func SignalNumber(name string) syscall.Signal { return unix.SignalNum(name) }

// SignalName returns a signal's name; empty if it has none.
func SignalName(s syscall.Signal) string { return unix.SignalName(s) }

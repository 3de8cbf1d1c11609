package command

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// credential is what it takes to run as name, and the variables that describe
// that user; nil for the empty name and for the user jorc already is.
func credential(name string) (*syscall.Credential, []string, error) {
	if name == "" {
		return nil, nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		byID, idErr := user.LookupId(name)
		if idErr != nil {
			return nil, nil, fmt.Errorf("%w: user %s: %w", ErrPermission, name, err)
		}
		u = byID
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

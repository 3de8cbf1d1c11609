package fleetlock

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"
)

// vendorUsers has users of systems that keep those of their packages apart, such as Fedora CoreOS, where
// Zincati comes from.
const vendorUsers = "/usr/lib/passwd"

// Unknown returns an error for each user that does not exist on this host.
func Unknown(users []string) (errs []error) {
	for _, name := range users {
		if _, err := userID(name); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// userID returns the number of a user that is named, or numbered.
func userID(name string) (int, error) {
	u, err := user.Lookup(name)
	if err == nil {
		return strconv.Atoi(u.Uid)
	}
	if uid, numberErr := strconv.ParseUint(name, 10, 31); numberErr == nil {
		return int(uid), nil
	}
	if uid, found, fileErr := userIn(vendorUsers, name); fileErr != nil || found {
		return uid, fileErr
	}
	return 0, fmt.Errorf("user %q: there is no such user", name)
}

// userIn finds a user in a file like /etc/passwd, which may be missing.
func userIn(path, name string) (uid int, found bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 4 || fields[0] != name {
			continue
		}
		uid, err := strconv.ParseUint(fields[2], 10, 31)
		if err != nil {
			return 0, false, fmt.Errorf("%s: user %q: %w", path, name, err)
		}
		return int(uid), true, nil
	}
	return 0, false, lines.Err()
}

package workflow

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jorc/jorc/internal/durable"
)

// tempMark begins the names of directories made for tasks of other users.
const tempMark = "jorc-task-"

// account is the user of a task; nil when it is jorc's own.
func account(name string) (*user.User, error) {
	if name == "" {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, fmt.Errorf("user %q: %w", name, err)
		}
	}
	if isOther(u) && os.Geteuid() != 0 {
		return nil, fmt.Errorf("only root can run tasks as user %s", name)
	}
	return u, nil
}

func isOther(u *user.User) bool { return u != nil && u.Uid != strconv.Itoa(os.Geteuid()) }

// place is where a task's user finds what belongs to the task: the job's
// directory, or for another user, who cannot get there, one of its own.
type place struct {
	dir       string
	tokenFile string
}

// handOver copies what s needs into dir, which belongs to jorc and which u can
// enter.
func (j *job) handOver(s *step, dir string, u *user.User) (place, error) {
	p := place{dir: dir}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return p, fmt.Errorf("user %q: %w", u.Username, err)
	}
	files := map[string]string{paramsFile: filepath.Join(j.dir, paramsFile)}
	if s.Script != "" {
		files[s.Script] = filepath.Join(j.dir, s.Script)
	}
	if j.spec.Change {
		files[changeFile] = filepath.Join(j.dir, changeFile)
	}
	if s.TokenFile != "" {
		p.tokenFile = filepath.Join(dir, "consul-token")
		files[filepath.Base(p.tokenFile)] = s.TokenFile
	}
	for name, from := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			return p, err
		}
		if err := giveTo(filepath.Join(dir, name), data, uid); err != nil {
			return p, err
		}
	}
	return p, nil
}

// giveTo writes a file that only its owner can read and run.
func giveTo(path string, data []byte, uid int) error {
	f, err := durable.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chown(uid, -1), f.Close())
}

// makeTemp makes a directory that everybody can enter and only jorc can list.
func makeTemp() (string, error) {
	if err := durable.CheckOwner(os.TempDir()); err != nil {
		return "", fmt.Errorf("directory for a task of another user: %w", err)
	}
	dir, err := os.MkdirTemp("", tempMark)
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

// removeTemp removes such a directory, and nothing else that a damaged record
// might name.
func removeTemp(dir string) error {
	if dir == "" {
		return nil
	}
	if !filepath.IsAbs(dir) || !strings.HasPrefix(filepath.Base(dir), tempMark) {
		return fmt.Errorf("%q is no directory of a task", dir)
	}
	if err := os.RemoveAll(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

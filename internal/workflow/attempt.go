package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
)

// onlyIfTime bounds an only_if of a task whose configuration has no timeout.
const onlyIfTime = time.Minute

// Environ are the variables that name c's cluster and Consul to tasks, and to the
// jorc and consul commands in them: for Options.Environ. No secrets are among
// them.
func Environ(c *config.Config) []string {
	var env []string
	for _, v := range [...]struct{ name, value string }{
		{"CONSUL_HTTP_ADDR", c.Consul.Address},
		{"CONSUL_CACERT", c.Consul.CAFile},
		{"CONSUL_CAPATH", c.Consul.CAPath},
		{"CONSUL_CLIENT_CERT", c.Consul.ClientCert},
		{"CONSUL_CLIENT_KEY", c.Consul.ClientKey},
		{"CONSUL_TLS_SERVER_NAME", c.Consul.TLSServerName},
		{"CONSUL_NAMESPACE", c.Consul.Namespace},
		{"CONSUL_PARTITION", c.Consul.Partition},
		{"JORC_DNS_ADDR", c.DNS.Addr},
		{"JORC_PREFIX", c.Prefix},
		{"JORC_CLUSTER", c.Cluster},
		{"JORC_VERSION_FILE", c.VersionFile},
		{"JORC_STATE_DIR", c.StateDir},
	} {
		if v.value != "" {
			env = append(env, v.name+"="+v.value)
		}
	}
	return env
}

// mark names one attempt of one task, among all state directories of the host.
func (j *job) mark(i int) string {
	return fmt.Sprintf("%s/%d/%d", j.spec.Nonce, i+1, j.rec.Tasks[i].Attempts)
}

// environ is the environment of a task's commands.
func (r *Runner) environ(j *job, i int, p place, u *user.User) []string {
	s := &j.spec.Steps[i]
	env := command.Environ(r.o.Environ...)
	if u != nil {
		env = append(env, "HOME="+u.HomeDir, "USER="+u.Username, "LOGNAME="+u.Username)
	}
	env = append(env,
		"JORC_JOB="+j.spec.ID, "JORC_WORKFLOW="+j.spec.Workflow, "JORC_TASK="+s.Name, "JORC_VERSION="+j.spec.Version, "JORC_NODE="+r.o.Node,
		"JORC_PARAMS="+filepath.Join(p.dir, paramsFile),
		"JORC_EXIT_REBOOT="+strconv.Itoa(ExitReboot), "JORC_EXIT_STOP="+strconv.Itoa(ExitStop), "JORC_EXIT_NOT_YET="+strconv.Itoa(ExitNotYet))
	if j.spec.Change {
		env = append(env, "JORC_CHANGE="+filepath.Join(p.dir, changeFile))
	}
	env = append(env, s.Env...)
	if p.tokenFile != "" {
		env = append(env, "CONSUL_HTTP_TOKEN_FILE="+p.tokenFile)
	}
	return env
}

// makePlace gives the user of a task a place. The caller saves the record before
// anything is in a new directory, so that a crash leaves nothing behind.
func (r *Runner) makePlace(j *job, i int) (p place, u *user.User, err error) {
	s := &j.spec.Steps[i]
	if u, err = account(s.User); err != nil {
		return p, nil, err
	}
	if s.TokenFile != "" {
		if _, err := readToken(s.TokenFile); err != nil { // it only has to be readable
			return p, nil, fmt.Errorf("token_file: %w", err)
		}
	}
	if !isOther(u) {
		return place{dir: j.dir, tokenFile: s.TokenFile}, u, nil
	}
	j.rec.Temp, err = makeTemp()
	return place{dir: j.rec.Temp}, u, err
}

// removePlace removes the place.
func (r *Runner) removePlace(j *job) {
	if err := removeTemp(j.rec.Temp); err != nil {
		r.log.Warn("a directory of a task stays behind", "job", j.spec.ID, "error", err)
	}
	j.rec.Temp = ""
}

// execute runs one of a task's commands; said gets its output, too. The error is
// ctx's, or why it could not be started.
func (r *Runner) execute(
	ctx context.Context, j *job, i int, args []string, timeout time.Duration, p place, u *user.User, mark string, said io.Writer,
) (command.Result, error) {
	s := &j.spec.Steps[i]
	if isOther(u) {
		var err error
		if p, err = j.handOver(s, p.dir, u); err != nil {
			return command.Result{ExitCode: command.ExitCannotRun}, fmt.Errorf("prepare for user %s: %w", u.Username, err)
		}
		if s.Script != "" && len(args) > 0 && args[len(args)-1] == filepath.Join(j.dir, s.Script) {
			args = s.argv(p.dir)
		}
	}
	log := openLog(j.logPath(i), r.o.MaxLog, r.o.Output)
	defer func() {
		if lost := log.close(); lost != "" {
			j.rec.Tasks[i].LogError = lost
		}
	}()
	out := io.MultiWriter(log, said)
	run := command.Run
	if r.o.Command != nil {
		run = r.o.Command
	}
	res, err := run(ctx, command.Command{
		Args: args, Dir: s.Dir, Env: append(r.environ(j, i, p, u), markName+"="+mark), User: s.User, Timeout: timeout, Grace: s.KillGrace, Stdout: out, Stderr: out,
		Redact: j.secrets(i),
	})
	if err != nil && ctx.Err() == nil {
		_, _ = fmt.Fprintf(log, "%v\n", err) // never fails
	}
	return res, err
}

// secrets are the tokens that task i knows of.
func (j *job) secrets(i int) []string {
	all := slices.Clone(j.spec.Secrets)
	if file := j.spec.Steps[i].TokenFile; file != "" {
		if data, err := readToken(file); err == nil { // the task fails for it, when it needs it
			all = append(all, strings.TrimSpace(string(data)))
		}
	}
	return all
}

// checkOnlyIf runs a task's only_if.
func (r *Runner) checkOnlyIf(ctx context.Context, j *job, i int) (bool, error) {
	s := &j.spec.Steps[i]
	if len(s.OnlyIf) == 0 {
		return true, nil
	}
	p, u, err := r.makePlace(j, i)
	defer r.removePlace(j)
	if err == nil && j.rec.Temp != "" {
		err = r.save(j)
	}
	if err != nil {
		return false, fmt.Errorf("only_if: %w", err)
	}
	timeout := cmp.Or(s.OnlyIfLimit, onlyIfTime)
	res, err := r.execute(ctx, j, i, s.OnlyIf, timeout, p, u, j.mark(i)+"/only_if", io.Discard)
	switch {
	case err != nil:
		return false, errors.New(j.redactor(i).text("only_if: " + err.Error()))
	case res.TimedOut:
		return false, fmt.Errorf("only_if: timed out after %v", timeout)
	}
	return res.ExitCode == 0, nil
}

// attempt runs a task once. The error is ctx's.
func (r *Runner) attempt(ctx context.Context, j *job, i int, p place, u *user.User) (command.Result, outcome, string, error) {
	s, t := &j.spec.Steps[i], &j.rec.Tasks[i]
	window := r.window()
	var said errorOutput
	res, err := r.execute(ctx, j, i, s.argv(j.dir), s.Timeout, p, u, j.mark(i), &said)
	hide := j.redactor(i)
	res.Output = hide.tail(res.Output, res.Truncated)
	cut := ctx.Err() != nil && errors.Is(err, ctx.Err())
	switch {
	case window == nil:
	case res.TimedOut || cut:
		// What left the process group goes, too: nothing must run beside the next attempt.
		killed, kerr := killMarked(j.mark(i))
		for _, k := range killed {
			r.log.Warn("killed, it had left its task's process group", "job", j.spec.ID, "task", s.Name, "process", k.String())
		}
		if kerr != nil {
			r.log.Error("workflow", "job", j.spec.ID, "task", s.Name, "error", kerr)
		}
	default:
		t.LeftBehind = r.leftBehind(ctx, j, i, window())
	}
	if cut {
		return res, outcomeFailed, "", err
	}
	what, why := classify(s, j.spec.Reboots, res, hide.text(said.text()), err)
	return res, what, hide.text(why), nil
}

// window begins to note which processes a task may start; nil: it starts none, in a simulated host.
func (r *Runner) window() func() pids {
	if r.o.Command != nil {
		return nil
	}
	return pidWindow()
}

// leftBehind are the processes that a task left running. Processes that
// are just ending get a moment.
func (r *Runner) leftBehind(ctx context.Context, j *job, i int, among pids) []string {
	const tries, moment = 10, 10 * time.Millisecond
	var found []process
	for n := range tries {
		var err error
		if found, err = marked(j.mark(i), among); err != nil || len(found) == 0 {
			return nil
		}
		if n < tries-1 && concurrency.Sleep(ctx, moment) != nil {
			break
		}
	}
	names := make([]string, len(found))
	for k, p := range found {
		names[k] = p.String()
	}
	return names
}

// tempMark begins the names of directories made for tasks of other users.
const tempMark = "jorc-task-"

// account is the user of a task; nil when it is jorc's own.
func account(name string) (*user.User, error) {
	if name == "" {
		return nil, nil
	}
	u, err := command.LookupUser(name)
	if err != nil {
		return nil, err
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
		read := os.ReadFile
		if from == s.TokenFile {
			read = readToken
		}
		data, err := read(from)
		if err != nil {
			return p, err
		}
		if err := giveTo(filepath.Join(dir, name), data, uid); err != nil {
			return p, err
		}
	}
	return p, nil
}

// readToken reads the file of a task's token, which the task's user will be able to
// read, too.
func readToken(file string) ([]byte, error) {
	const longest = 64 << 10 // tokens that are JSON web tokens included
	return durable.ReadFile(file, longest)
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

// makeTemp makes a directory that every user can enter and only jorc can list.
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

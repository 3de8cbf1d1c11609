package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/web"
)

// token checks the source of Consul's token and the permissions of its file.
func (e *examination) token(context.Context) []Finding {
	const name = "token"
	switch c := e.Config.Consul; {
	case c.TokenFile != "":
		status, detail, remedy := classifyTokenFile(c.TokenFile)
		return one(name, status, detail, remedy)
	case c.Token != "":
		return one(name, OK, "from CONSUL_HTTP_TOKEN", "")
	}
	return one(name, Skip, "none is set", "")
}

func classifyTokenFile(path string) (s Status, detail, remedy string) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Fail, err.Error(), "correct --token-file, or run this as the agent's user"
	}
	if strings.TrimSpace(string(data)) == "" {
		return Fail, path + " is empty", "write the token into it"
	}
	info, err := os.Stat(path)
	if err != nil {
		return Fail, err.Error(), ""
	}
	remedy = "chmod 0600 " + path
	mode := info.Mode().Perm()
	switch {
	case runtime.GOOS == "windows": // which has no modes
		return OK, path + " can be read", ""
	case mode&0o007 != 0:
		return Fail, fmt.Sprintf("every user of this host can access %s (mode %04o)", path, mode), remedy
	case mode&0o070 != 0:
		return Warn, fmt.Sprintf("its group can access %s (mode %04o)", path, mode), remedy
	}
	if owner := durable.InfoOf(info).UID; owner != 0 && int(owner) != os.Geteuid() {
		return Warn, fmt.Sprintf("%s belongs to user %d", path, owner), "chown root " + path
	}
	return OK, path + " is accessible only to its owner", ""
}

// Limits of the free bytes of the state directory's file system.
const (
	littleSpace = 256 << 20
	noSpace     = 16 << 20
)

// stateDir checks that the state directory can be written.
func (e *examination) stateDir(context.Context) []Finding {
	const name = "state_dir"
	if e.NoAgent != "" {
		return one(name, Skip, e.NoAgent, "")
	}
	status, detail, remedy := classifyStateDir(e.Config.StateDir)
	return one(name, status, detail, remedy)
}

func classifyStateDir(dir string) (s Status, detail, remedy string) {
	err := tryWrite(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Warn, dir + " does not exist", "'jorc agent' makes it at its first start, if it may: run it as root, or set --state-dir (JORC_STATE_DIR)"
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return Skip, fmt.Sprintf("%s is not yours to write (user %d)", dir, os.Geteuid()), "run this as the agent's user"
	case err != nil:
		return Fail, err.Error(), "the state directory must be on a disk that can be written (--state-dir)"
	}
	free, err := durable.FreeSpace(dir)
	if err != nil {
		return Warn, fmt.Sprintf("%s: free space: %v", dir, err), ""
	}
	return classifySpace(dir, free.Bytes, free.Files, free.FilesFree)
}

func classifySpace(dir string, free, files, filesFree uint64) (s Status, detail, remedy string) {
	detail = fmt.Sprintf("%s: %d MiB free", dir, free>>20)
	remedy = "make room on its disk"
	switch {
	case free < noSpace:
		return Fail, detail, remedy
	case files > 0 && filesFree == 0:
		return Fail, dir + ": no inode is free", remedy
	case free < littleSpace:
		return Warn, detail, remedy
	}
	return OK, fmt.Sprintf("%s can be written, %d MiB free", dir, free>>20), ""
}

// tryWrite writes a file into dir and removes it.
func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".jorc-doctor-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString("probe\n")
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// holder returns who uses the state directory; empty: no agent does.
func (e *examination) holder() (string, error) {
	return durable.Holder(filepath.Join(e.Config.StateDir, catalog.LockFile))
}

// agent checks that an agent uses the state directory, and reads its health.
func (e *examination) agent(ctx context.Context) []Finding {
	const name = "agent"
	if e.NoAgent != "" {
		return one(name, Skip, e.NoAgent, "")
	}
	holder, err := e.holder()
	switch {
	case errors.Is(err, fs.ErrPermission):
		return one(name, Skip, err.Error(), "run this as the agent's user")
	case err != nil:
		return one(name, Warn, err.Error(), "")
	case holder == "":
		return one(name, Warn, "no jorc agent runs with "+e.Config.StateDir, "start it: systemctl start jorc, or jorc agent --config PATH")
	case e.Config.HTTP.Addr == "":
		return one(name, OK, "runs ("+holder+"), its status API is switched off", "")
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	reported, err := askHealthz(ctx, e.Config.HTTP)
	if err != nil {
		return one(name, Warn, fmt.Sprintf("runs (%s), but %s: %v", holder, e.Config.HTTP.Addr, err), "see its log; give this the agent's own --config PATH, for http.address")
	}
	if reported != "" {
		return one(name, Warn, fmt.Sprintf("runs (%s), but reports: %s", holder, reported), "see its log and /v1/status")
	}
	s := askStatus(ctx, e.Config.HTTP)
	if s.Resting != "" {
		return one(name, Warn, fmt.Sprintf("runs (%s), but %s", holder, s.Resting), "let templates read less or give the agent more memory, then: systemctl reload jorc")
	}
	if s.Rival != "" {
		return one(name, Warn, fmt.Sprintf("runs (%s), but reports: %s", holder, s.Rival), "the node's name is that of the Consul agent, or the setting node: see both configurations, and CONSUL_HTTP_ADDR")
	}
	if templates := templateTrouble(s.Templates); templates != "" {
		return one(name, Warn, fmt.Sprintf("runs (%s), but %s", holder, templates), "see /v1/status, its log, and docs/runbook.md, \"Files no longer change\"")
	}
	return one(name, OK, "runs ("+holder+") and is well", "")
}

// templateTrouble names the first template that failed, or whose reload did, else the
// first stale one, and how many others there are of both; empty: none.
func templateTrouble(all []web.Template) string {
	first, others := "", 0
	for _, state := range []string{web.TemplateFailed, web.TemplateStale} {
		for i := range all {
			t := &all[i]
			switch {
			case t.State != state:
			case first != "":
				others++
			case state == web.TemplateStale:
				first = fmt.Sprintf("template %q is stale since %s: %s", t.Name, t.Since.Format(time.RFC3339), firstLine(strings.Join(t.Stale, "; ")))
			default:
				first = fmt.Sprintf("template %q failed: %s", t.Name, firstLine(t.Error))
			}
		}
	}
	if others > 0 {
		first += fmt.Sprintf("; other templates that failed or are stale: %d", others)
	}
	return first
}

// askHealthz returns why a running agent is unhealthy; empty: it is healthy.
func askHealthz(ctx context.Context, c config.HTTP) (string, error) {
	status, text, err := askAgent(ctx, c, "/healthz", 1<<10)
	if err != nil || status == http.StatusOK {
		return "", err
	}
	return fmt.Sprintf("%d %s: %s", status, http.StatusText(status), firstLine(string(text))), nil
}

// AgentStatus returns what the agent of a configuration says of its host. The error says what
// to do.
func AgentStatus(ctx context.Context, c *config.Config) (s web.Status, err error) {
	if c.HTTP.Addr == "" {
		return s, errors.New("the status API of this host's agent is switched off: set http { addr } in its configuration")
	}
	_, body, err := askAgent(ctx, c.HTTP, "/v1/status", 16<<20)
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err != nil {
		return s, fmt.Errorf("the status of this host's agent at %s: %w: start it (systemctl start jorc), or give its own --config", c.HTTP.Addr, err)
	}
	return s, nil
}

// askStatus returns a running agent's status; zero: it cannot be read.
func askStatus(ctx context.Context, c config.HTTP) (s web.Status) {
	_, body, err := askAgent(ctx, c, "/v1/status", 16<<20)
	if err != nil || json.Unmarshal(body, &s) != nil {
		return web.Status{}
	}
	return s
}

// askAgent queries a running agent's status API and reads at most most bytes.
func askAgent(ctx context.Context, c config.HTTP, path string, most int64) (status int, text []byte, err error) {
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return 0, nil, err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, errors.Unwrap(err) // without the URL
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, most))
	return resp.StatusCode, text, err
}

// configuration checks the files given with --config.
func (e *examination) configuration(context.Context) []Finding {
	const name = "configuration"
	paths := strings.Join(e.Paths, " ")
	switch n := len(e.Config.Warnings); {
	case e.Problem != nil:
		return one(name, Fail, firstLine(e.Problem.Error()), "'jorc config validate "+paths+"' lists every problem")
	case len(e.Paths) == 0:
		return one(name, Skip, "none was given", "give --config PATH: it is checked, with the rights that it needs")
	case n > 0:
		return one(name, Warn, fmt.Sprintf("%s: %s (1 of %d)", paths, firstLine(e.Config.Warnings[0].String()), n), "'jorc config validate "+paths+"' shows all")
	}
	return one(name, OK, paths+" is valid", "")
}

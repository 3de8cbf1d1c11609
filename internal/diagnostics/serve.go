package diagnostics

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
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/durable"
)

// The agent answers 'jorc debug' on a socket in a directory of its state directory that
// only the agent's user can enter: stacks and logs are not for every user of the host,
// as the status API on the loopback interface is.

const (
	socketDir  = "debug"
	socketName = "socket"
	maxEntries = 500
	maxText    = 2000
	readWithin = 10 * time.Second
)

// Entry is a line of the agent's log.
type Entry struct {
	Time    string      `json:"time"`
	Level   string      `json:"level"`
	Logger  string      `json:"logger"`
	Message string      `json:"message"`
	Pairs   [][2]string `json:"pairs,omitempty"` // numbers, errors, and texts of plain members
}

// Log keeps the last lines of a log; it is a sink of an hclog.InterceptLogger.
type Log struct {
	mu      sync.Mutex
	entries []Entry
}

// Accept implements hclog.SinkAdapter.
func (l *Log) Accept(name string, level hclog.Level, msg string, args ...any) {
	if level < hclog.Info {
		return
	}
	e := Entry{Time: time.Now().UTC().Format(time.RFC3339Nano), Level: level.String(), Logger: name, Message: cut(msg)}
	for i := 0; i+1 < len(args); i += 2 {
		key, value := fmt.Sprint(args[i]), "withheld"
		switch v := args[i+1].(type) {
		case error:
			value = cut(command.WithoutOutput(v))
		case int, uint64, time.Duration:
			value = fmt.Sprint(v)
		default:
			if k := memberKey(key); plain()[k] && !sealed()[k] {
				value = cut(fmt.Sprint(v))
			}
		}
		e.Pairs = append(e.Pairs, [2]string{key, value})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries = append(l.entries, e); len(l.entries) > 2*maxEntries {
		l.entries = append([]Entry{}, l.entries[maxEntries:]...)
	}
}

func cut(text string) string { return text[:min(len(text), maxText)] }

func (l *Log) write(w io.Writer) error {
	l.mu.Lock()
	last := l.entries[max(0, len(l.entries)-maxEntries):]
	l.mu.Unlock() // entries are not changed once they are written
	out := json.NewEncoder(w)
	for _, e := range last {
		if err := out.Encode(e); err != nil {
			return err
		}
	}
	return nil
}

// Serve answers 'jorc debug' until ctx ends. The caller holds the lock of the state
// directory.
func Serve(ctx context.Context, stateDir string, log *Log) error {
	path := filepath.Join(stateDir, socketDir)
	if err := durable.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("debug socket: %w", err)
	}
	if err := durable.CheckOwner(path); err != nil {
		return fmt.Errorf("debug socket: %w", err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("debug socket: %w", err)
	}
	defer dir.Close()
	if err := errors.Join(dir.Chmod(0o700), removeSocket(path)); err != nil {
		return fmt.Errorf("debug socket: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", socketIn(dir))
	if err != nil {
		return fmt.Errorf("debug socket: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /goroutines", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(goroutines()) // an error: the client has left
	})
	mux.HandleFunc("GET /log", func(w http.ResponseWriter, _ *http.Request) {
		_ = log.write(w) // as above
	})
	server := &http.Server{Handler: mux, ReadTimeout: readWithin, WriteTimeout: readWithin, ErrorLog: hclog.NewNullLogger().StandardLogger(nil)}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("debug socket: %w", err)
	}
	return nil
}

// removeSocket removes the socket of an agent that was killed.
func removeSocket(dir string) error {
	if err := os.Remove(filepath.Join(dir, socketName)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// socketIn is the socket's path through its open directory: the paths of sockets must be
// short.
func socketIn(dir *os.File) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName)
}

// askAgent asks the agent that uses a state directory, and reads as get does.
func askAgent(ctx context.Context, stateDir, what string, most int64) ([]byte, error) {
	dir, err := os.Open(filepath.Join(stateDir, socketDir))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socketIn(dir))
	}}
	return get(ctx, &http.Client{Transport: transport}, "http://agent/"+what, most)
}

// get reads at most most bytes of an answer. If there are more, it returns these and an error.
func get(ctx context.Context, client *http.Client, url string, most int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, errors.Unwrap(err) // without the URL
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s", response.Status)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return data[:most], fmt.Errorf("it answers more than %d MiB", most>>20)
	}
	return data, nil
}

//go:build linux

package fleettest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jorc/jorc/internal/durable"
)

// WebServer is a program of hosts: `$SELF role:web ADDR NAME VERSIONFILE
// PIDFILE` answers with its name and the version that it found when it began.
// It does not drain: ending it breaks its running requests.
func WebServer(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("want ADDR NAME VERSIONFILE PIDFILE, not %q", args)
	}
	version, err := os.ReadFile(args[2])
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := durable.WriteFile(args[3], []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return err
	}
	var last atomic.Int64 // nanoseconds: when a request was last being served
	last.Store(time.Now().UnixNano())
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/quiet", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(quiet{time.Since(time.Unix(0, last.Load())), strings.TrimSpace(string(version))}) // to a test
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s %s\n", args[1], strings.TrimSpace(string(version)))
		last.Store(time.Now().UnixNano())
	})
	server := http.Server{Addr: args[0], Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}

// quiet is a web server's status.
type quiet struct {
	For     time.Duration `json:"for"` // no request has come
	Version string        `json:"version"`
}

// Drain is a program of hosts: `$SELF role:drain URL D` ends when the web
// server there had no request for D.
func Drain(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want URL D, not %q", args)
	}
	want, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	return untilQuiet(args[0], func(q quiet) bool { return q.For >= want })
}

// Answers is a program of hosts: `$SELF role:answers URL VERSION` ends when
// the web server there has that version.
func Answers(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want URL VERSION, not %q", args)
	}
	return untilQuiet(args[0], func(q quiet) bool { return q.Version == args[1] })
}

// untilQuiet polls the status of the web server at url until it is the wanted one.
func untilQuiet(url string, wanted func(quiet) bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		var q quiet
		_, err := request(ctx, client, http.MethodGet, url+"/quiet", "", nil, &q)
		if err == nil && wanted(q) {
			return nil
		}
		if late := sleepUntil(ctx, time.Now().Add(20*time.Millisecond)); late != nil {
			return fmt.Errorf("%s is not so after a minute: last %+v, %w", url, q, err)
		}
	}
}

//go:build fleet || soak

// Package fleet_test is the scenarios of several hosts: see docs/fleet-tests.md.
package fleet_test

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/fleettest"
)

func TestMain(m *testing.M) {
	os.Exit(fleettest.Main(m, os.Stderr, map[string]func([]string) error{"hold": hold}))
}

// hold is a program of hosts: `$SELF role:hold FILE D` notes when it began and
// when it ended, after D or after a signal.
func hold(args []string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	begin := time.Now()
	d, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	if err := note(args[0], "granted", begin); err != nil {
		return err
	}
	select {
	case <-stop:
	case <-time.After(d):
	}
	return note(args[0], "released", time.Now())
}

// note adds a line to a file.
func note(file, what string, at time.Time) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s %d\n", what, at.UnixNano())
	return err
}

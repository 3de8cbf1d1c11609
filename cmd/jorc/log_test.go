package main

import (
	"bytes"
	"log"
	"strings"
	"testing"
)

// TestBridgeStandardLog is not parallel: it changes package log's output.
func TestBridgeStandardLog(t *testing.T) {
	writer, flags := log.Writer(), log.Flags()
	t.Cleanup(func() { log.SetOutput(writer); log.SetFlags(flags) })

	var stderr bytes.Buffer
	env := newEnvironment(testHost(nil, &stderr, &stderr))
	bridgeStandardLog(env.logger("warn", false))
	log.Print("[WARN] (view) vault.read: odd")
	log.Print("[DEBUG] (runner) chatter")
	if got := stderr.String(); !strings.Contains(got, "[WARN]  jorc: (view) vault.read: odd") || strings.Contains(got, "chatter") {
		t.Errorf("got %q", got)
	}
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

func TestPublishService(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	for _, test := range []struct {
		args string
		code int
	}{
		{"publish_service 127.0.0.1 10.200.0.7 web db", 0},
		{"publish_service 127.0.0.1 10.200.0.7 web db", 0},
		{"publish_service " + s.Node + " vip=10.200.0.9 dns", 0},
		{"publish_service elsewhere 10.200.0.9 dns", 1},
		{"publish_service web", 2},
		{"publish_service 10.200.0.9", 2},
		{"publish_service", 0}, // no services are configured
	} {
		if got := jorc(t, env, strings.Fields(test.args)...); got.code != test.code || got.stdout != "" || (got.stderr == "") != (test.code == 0) {
			t.Errorf("jorc %s: %+v, want exit %d", test.args, got, test.code)
		}
	}
	wantInCatalog(t, s, "web", "db", "dns")
	file := filepath.Join(t.TempDir(), "services.yaml")
	if got := jorc(t, env, "cache_services", "--file", file); got != (result{0, "", ""}) {
		t.Errorf("cache_services: %+v", got)
	}
	data, err := os.ReadFile(file)
	for _, line := range []string{"services::web::lo:\n  - 127.0.0.1\n", "services::db::lan:\n  - 10.200.0.7\n", "services::dns::vip:\n  - 10.200.0.9\n"} {
		if !strings.Contains(string(data), line) {
			t.Errorf("%q is missing in %s, %v", line, data, err)
		}
	}
}

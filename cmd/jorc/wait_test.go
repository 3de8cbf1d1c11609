package main

import (
	"bytes"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/terminal"
)

// becoming is what jorc wanted to become.
type becoming struct {
	path          string
	args, environ []string
}

// jorcWait runs "jorc wait" against s, in a process that cannot be replaced.
func jorcWait(t *testing.T, s *consultest.Server, token string, fail error, args ...string) (result, *becoming) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	environ := map[string]string{
		"CONSUL_HTTP_ADDR": s.HTTPAddr, "JORC_DNS_ADDR": s.DNSAddr, "CONSUL_HTTP_TOKEN": token, "PATH": "/bin", "NOTIFY_SOCKET": "/run/x",
	}
	h := testHost(environ, &stdout, &stderr)
	var b *becoming
	h.environ = func() []string {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(environ)) {
			all = append(all, name+"="+environ[name])
		}
		return all
	}
	h.exec = func(path string, args, environ []string) error {
		b = &becoming{path, args, environ}
		return fail
	}
	code := run(t.Context(), append([]string{"wait"}, args...), h)
	return result{code, stdout.String(), stderr.String()}, b
}

func TestWaitWrongUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                                 "missing argument TARGET",
		"web --":                           "missing COMMAND after --",
		"web=x":                            `target "web=x", character 5: want a number after =, not 'x'`,
		"web --for alive":                  `--for is "alive", but must be one of addressable, functional or reachable`,
		"web --dns-only --passing":         `"web": DNS does not distinguish passing from warning`,
		"web --dns-only --for=addressable": `"web": DNS shows only functional services, not registered ones`,
		"web --stable 2m":                  "a timeout of 1m0s ends before anything can have been stable for 2m0s",
		"web --try-sleep 1s":               "a pause between tries needs a number of tries",
		"web --timeout soon":               `invalid value "soon" for flag --timeout`,
		"a(b":                              `cannot look up "a(b" over DNS: it contains '('`,
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			got := jorc(t, nil, append([]string{"wait"}, strings.Fields(args)...)...)
			if want := "jorc: " + want + "; see 'jorc wait --help'\n"; got.code != exitUsage || got.stderr != want || got.stdout != "" {
				t.Errorf("got %+v, want %q", got, want)
			}
		})
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	if err := s.Client().RegisterService(t.Context(), &consul.ServiceRegistration{Name: "web", Port: 1, Address: "10.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	notHere, _ := jorcWait(t, s, "", nil, "db", "web", "mq=2", "--tries", "2", "--try-sleep=1ms")
	lines := strings.Split(notHere.stderr, "\n")
	if notHere.code != exitTimeout || notHere.stdout != "" || len(lines) != 3 ||
		!strings.HasSuffix(lines[0], ": db: 0 of 1: none registered") || !strings.HasSuffix(lines[1], ": mq=2: 0 of 2: none registered") {
		t.Errorf("two missing: %+v", notHere)
	}
	if got, b := jorcWait(t, s, "", nil, "web", "web.service.consul."); got != (result{}) || b != nil {
		t.Errorf("got %+v, became %+v", got, b)
	}
	if got, _ := jorcWait(t, s, "", nil, "web", "--dns-only", "--http-addr=127.0.0.1:1"); got != (result{}) {
		t.Errorf("over DNS only: %+v", got)
	}
	got, _ := jorcWait(t, s, "", nil, "web", "--for", "reachable", "--timeout", "50ms", "--http-addr=127.0.0.1:1", "--dns-addr=127.0.0.1:1")
	if got.code != exitUnreachable || !strings.HasPrefix(got.stderr, "jorc: timed out after ") {
		t.Errorf("without Consul: %+v", got)
	}
}

func TestWaitBecomes(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	if err := s.Client().RegisterService(t.Context(), &consul.ServiceRegistration{Name: "web", Port: 1}); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for _, test := range []struct {
		name, args string
		fail       error
		code       int
		token      bool
	}{
		{"command", "web -- sh --timeout x", nil, exitOK, false},
		{"command that gets the token", "web --pass-token -- sh", nil, exitOK, true},
		{"command that is not found", "web -- no-such-command", nil, exitNotFound, false},
		{"path that is not found", "web -- " + missing, nil, exitNotFound, false},
		{"directory", "web -- /etc", nil, exitCannotRun, false},
		{"refused by the kernel", "web -- sh", syscall.EACCES, exitCannotRun, false},
		{"without its interpreter", "web -- sh", fs.ErrNotExist, exitNotFound, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, b := jorcWait(t, s, "secret", test.fail, strings.Fields(test.args)...)
			if got.code != test.code || (got.stderr == "") != (test.code == exitOK) {
				t.Fatalf("got %+v, want exit %d", got, test.code)
			}
			if test.code != exitOK {
				return
			}
			_, want, _ := strings.Cut(test.args, "-- ")
			if strings.Join(b.args, " ") != want || !filepath.IsAbs(b.path) {
				t.Errorf("became %+v, want %s", b, want)
			}
			if got := slices.Contains(b.environ, "CONSUL_HTTP_TOKEN=secret"); got != test.token {
				t.Errorf("token passed: %v, want %v", got, test.token)
			}
			if !slices.Contains(b.environ, "NOTIFY_SOCKET=/run/x") || !slices.Contains(b.environ, "CONSUL_HTTP_ADDR="+s.HTTPAddr) {
				t.Errorf("environment %q lacks what is no token", b.environ)
			}
		})
	}
}

func TestWaitDenied(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	got, _ := jorcWait(t, s, s.NewToken(`service "db" { policy = "read" }`), nil, "web")
	if want := `jorc: denied by ACLs: web: the token may not read the service "web"` + "\n"; got.code != exitDenied || got.stderr != want {
		t.Errorf("got %+v, want %q", got, want)
	}
}

// TestMissingOverwrites: each state of a wait takes the place of the one before, and
// nothing of it stays.
func TestMissingOverwrites(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := terminal.NewScreen(&out, func() terminal.Size { return terminal.Size{Columns: 30, Rows: 10} })
	target := blocker.Target{Service: "web", Count: 1}
	draw := showMissing(s)
	draw([]blocker.State{{Need: blocker.Need{Target: target}, Why: "0 of 1: a check says \x1b[2J and more"}})
	draw([]blocker.State{{Need: blocker.Need{Target: target}, Why: "x"}})
	s.Clear()
	s.Clear()
	want := "\r\x1b[?7lwaiting for web: 0 of 1: a c…\x1b[K\n\x1b[J\x1b[?7h" +
		"\r\x1b[1A\x1b[?7lwaiting for web: x\x1b[K\n\x1b[J\x1b[?7h" + "\r\x1b[1A\x1b[J"
	if got := out.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	var none *terminal.Screen
	showMissing(none)(nil) // no terminal
	none.Clear()
}

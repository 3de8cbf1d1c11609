package diagnostics_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/diagnostics"
	"github.com/jorc/jorc/internal/fleet"
)

func optionsFor(t *testing.T, s *consultest.Server, name string) diagnostics.Options {
	t.Helper()
	client := s.Client()
	t.Cleanup(client.Close)
	return diagnostics.Options{
		Config: &config.Config{StateDir: t.TempDir()}, Client: client, Cluster: fleet.New(client, "jorc", name),
		Timeout: time.Minute, Now: time.Unix(1e9, 0).UTC(),
	}
}

// part returns a part of a host's archive.
func part(t *testing.T, o diagnostics.Options, name string) (content string, of diagnostics.Part) {
	t.Helper()
	parts := diagnostics.Collect(t.Context(), o)
	var out bytes.Buffer
	if err := diagnostics.Write(&out, "report", o.Now, parts); err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if p.Name == name {
			of = p
		}
	}
	zipped, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return content, of
		}
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(header.Name) == name {
			data, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			content = string(data)
		}
	}
}

// TestArchiveIsBounded: of a cluster with too many keys the archive has the first ones, and
// says so.
func TestArchiveIsBounded(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	for _, test := range []struct {
		cluster     string
		keys, bytes int
		want        string
	}{
		{"many", 2001, 1, "only 2000 of 2001 keys"},
		{"large", 10, 500 << 10, "only 8 of 10 keys: they have more than 4 MiB"},
	} {
		c := s.Client()
		for i := range test.keys {
			pair := &consul.KVPair{Key: fmt.Sprintf("jorc/%s/nodes/n%04d", test.cluster, i), Value: []byte(`"` + strings.Repeat("x", test.bytes) + `"`)}
			if err := c.KVPut(t.Context(), pair); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		content, got := part(t, optionsFor(t, s, test.cluster), "keys.json")
		if got.Missing != test.want || len(content) > 4<<20 || !strings.Contains(content, "jorc/"+test.cluster+"/nodes/n0000") {
			t.Errorf("%s: missing = %q, want %q; %d bytes", test.cluster, got.Missing, test.want, len(content))
		}
	}
}

// TestSocketOfNoAgent: a file in place of the agent's directory is reported.
func TestSocketOfNoAgent(t *testing.T) {
	t.Parallel()
	o := optionsFor(t, consultest.Start(t), "c")
	if err := os.WriteFile(filepath.Join(o.Config.StateDir, "debug"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, got := part(t, o, "log.txt"); !strings.Contains(got.Missing, "no agent answers") {
		t.Errorf("missing = %q", got.Missing)
	}
}

// quote is an error that quotes a command's output.
type quote struct{}

func (quote) Error() string         { return "sh -c secret: exit code 1: secret output" }
func (quote) WithoutOutput() string { return "exit code 1" }

// TestLogWithoutOutput: the log has errors, also wrapped ones, without the output of commands,
// and of other values only numbers and names.
func TestLogWithoutOutput(t *testing.T) {
	t.Parallel()
	o := optionsFor(t, consultest.Start(t), "c")
	var recent diagnostics.Log
	log := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "jorc", Output: io.Discard})
	log.RegisterSink(&recent)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- diagnostics.Serve(ctx, o.Config.StateDir, &recent) }()
	for i := range 1200 {
		log.Info("old", "retry", i)
	}
	log.Error("failed", "error", fmt.Errorf("reload: %w; then secret", quote{}), "value", "secret", "retry", 3, "node", "n1")
	log.Debug("secret")
	want := "[error] jorc: failed error=reload: exit code 1 value=withheld retry=3 node=n1\n"
	consultest.Eventually(t, "the agent answers", func(context.Context) error {
		content, got := part(t, o, "log.txt")
		if !strings.HasSuffix(content, want) || strings.Contains(content, "secret") || strings.Count(content, "\n") != 500 {
			return fmt.Errorf("got %+v and %q", got, content[max(0, len(content)-500):])
		}
		return nil
	})
	if content, _ := part(t, o, "goroutines.txt"); !strings.Contains(content, "diagnostics.Serve") {
		t.Errorf("goroutines.txt = %q", content)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

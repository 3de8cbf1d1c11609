package watch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/watch"
)

// Variables that make the test program run an engine until it is killed.
const (
	childAddr  = "JORC_TEST_CONSUL"
	childDir   = "JORC_TEST_DIR"
	childState = "JORC_TEST_STATE"
)

func TestMain(m *testing.M) {
	if os.Getenv(childAddr) != "" {
		fmt.Fprintln(os.Stderr, runChild())
		os.Exit(1)
	}
	os.Exit(consultest.Main(m))
}

// runChild runs the engine that is killed, until it is.
func runChild() error {
	conf := config.Consul{Address: os.Getenv(childAddr)}
	client, err := consul.New(conf)
	if err != nil {
		return err
	}
	dir, state := os.Getenv(childDir), os.Getenv(childState)
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr})
	r := replace.New(state, nil, log)
	templates := crashTemplates(dir)
	if _, err := r.Recover(context.Background(), replace.RecoverOptions{Destinations: destinations(templates)}); err != nil {
		return err
	}
	e, err := watch.New(watch.Options{Client: client, Consul: conf, Templates: templates, StateDir: state, Replacer: r, Log: log})
	if err != nil {
		return err
	}
	return e.Run(context.Background())
}

// crashTemplates are a file alone, one that is reloaded, and two that go
// together; each holds one value many times.
func crashTemplates(dir string) []config.Template {
	file := func(name, key string) config.Template {
		return config.Template{
			Name: name, Destination: filepath.Join(dir, name), Contents: `{{ $v := key "` + key + `" }}{{ range loop 2000 }}{{ $v }}` + "\n" + `{{ end }}`,
		}
	}
	list := []config.Template{file("alone", "a"), file("loaded", "a"), file("pair-1", "a"), file("pair-2", "b")}
	list[1].Reload = []string{"cp", list[1].Destination, filepath.Join(dir, "copy")}
	for i := range list[2:] {
		list[2+i].Together = "pair"
		list[2+i].Reload = []string{"sh", "-c", fmt.Sprintf("cat %s/pair-1 %s/pair-2 > %s/both", dir, dir, dir)}
	}
	return list
}

func destinations(templates []config.Template) []string {
	var list []string
	for i := range templates {
		list = append(list, templates[i].Destination)
	}
	return list
}

// whole makes sure that a file holds one value many times, and returns it.
func whole(path string) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	value, _, _ := bytes.Cut(data, []byte("\n"))
	if want := bytes.Repeat(append(value, '\n'), 2000); !bytes.Equal(data, want) {
		return "", fmt.Errorf("%s has %d bytes that are not 2000 times %q", path, len(data), value)
	}
	return string(value), nil
}

func TestKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	h := newHost(t, s)
	templates := crashTemplates(h.dir)
	ctx, cancel := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	readers.Go(func() {
		for ctx.Err() == nil {
			for _, path := range destinations(templates) {
				if _, err := whole(path); err != nil {
					t.Error(err)
				}
			}
		}
	})
	value := 0
	set := func() {
		value++
		v := []byte(strings.Repeat(fmt.Sprint(value, " "), 1+value%7))
		h.txn(consul.TxnOps{
			{KV: &consul.KVTxnOp{Verb: consul.KVSet, Key: "a", Value: v}},
			{KV: &consul.KVTxnOp{Verb: consul.KVSet, Key: "b", Value: v}},
		})
	}
	for range 12 {
		set()
		child := h.child()
		h.waitForChild(value)
		for range rand.N(60) {
			set() // what comes of it when is up to the child
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := child.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Fatalf("the child ended with %v", err)
		}
	}
	set()
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr})
	r := replace.New(h.state, nil, log)
	if _, err := r.Recover(t.Context(), replace.RecoverOptions{Destinations: destinations(templates)}); err != nil {
		t.Errorf("Recover = %v", err)
	}
	h.edit = func(o *watch.Options) { o.Replacer = r }
	if err := h.once(templates...); err != nil {
		t.Errorf("Once = %v", err)
	}
	want := strings.Repeat(fmt.Sprint(value, " "), 1+value%7)
	for _, path := range append(destinations(templates), h.path("copy")) {
		if got, err := whole(path); err != nil || got != want {
			t.Errorf("%s holds %q (%v); want %q", path, got, err, want)
		}
	}
	both, err := os.ReadFile(h.path("both"))
	if err != nil || strings.Count(string(both), want+"\n") != 4000 {
		t.Errorf("what was loaded of the pair is not what is in the files (%v)", err)
	}
	leftovers(t, h.dir)
	if list, err := os.ReadDir(filepath.Join(h.state, "journal")); err != nil || len(list) > 0 {
		t.Errorf("journals are left: %v, %v", list, err)
	}
}

// child starts the test program as an engine.
func (h *host) child() *exec.Cmd {
	h.t.Helper()
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(os.Environ(), childAddr+"="+h.server.HTTPAddr, childDir+"="+h.dir, childState+"="+h.state)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = cmd.Process.Kill() }) // it is dead already, unless the test failed
	return cmd
}

// waitForChild waits until the child has brought a file up to date.
func (h *host) waitForChild(value int) {
	h.t.Helper()
	want := strings.Repeat(fmt.Sprint(value, " "), 1+value%7)
	consultest.Eventually(h.t, "the child to work", func(context.Context) error {
		got, err := whole(h.path("alone"))
		if err == nil && got != want {
			err = fmt.Errorf("alone holds %q", got)
		}
		return err
	})
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The programs that are compared.
const (
	jorc = "jorc"
	peer = "consul-template"
)

// contender is one of the programs at work, with files and a part of Consul's
// data of its own.
type contender struct {
	program string
	consul  *consul
	dir     string // of its files
	seen    *observer
	proc    *process
	cost    footprint
}

// file is the name of the file of template i.
func file(i int) string { return fmt.Sprintf("f%05d.conf", i) }

// newContender prepares a program without starting it.
func (b *bench) newContender(program string, c *consul) (*contender, error) {
	dir, err := b.place(program)
	if err != nil {
		return nil, err
	}
	files := filepath.Join(dir, "files")
	if err := os.Mkdir(files, 0o755); err != nil {
		return nil, err
	}
	seen, err := observe(files)
	if err != nil {
		return nil, err
	}
	return &contender{program: program, consul: c, dir: files, seen: seen}, nil
}

// close ends the program.
func (c *contender) close() {
	if c.proc != nil {
		c.proc.kill()
	}
	c.seen.Close()
}

// run starts the program on templates and returns when all files are there,
// with the content that want names.
func (c *contender) run(ctx context.Context, b *bench, templates []string, extra string, want map[string]string) error {
	home := filepath.Dir(c.dir)
	conf := filepath.Join(home, "config.hcl")
	text, argv := c.jorcConfig(home, templates)+extra, []string{b.programs.jorc, "agent", "--config", conf}
	if c.program == peer {
		text, argv = c.peerConfig(templates), []string{b.programs.peer, "-config", conf}
	}
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return err
	}
	c.seen.drain()
	var err error
	if c.proc, err = start(home, c.program, argv); err != nil {
		return err
	}
	last, err := c.seen.await(ctx, c.proc, want)
	c.cost.program, c.cost.start = c.program, last.Sub(c.proc.begun)
	return err
}

func (c *contender) jorcConfig(home string, templates []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "state_dir = %q\nlog_level = \"error\"\nhttp { address = \"127.0.0.1:0\" }\n", filepath.Join(home, "state"))
	fmt.Fprintf(&b, "consul { address = %q }\ndns { address = %q }\n", c.consul.http, c.consul.dns)
	for i, t := range templates {
		fmt.Fprintf(&b, "template \"t%d\" {\n  contents = %q\n  destination = %q\n}\n", i, t, filepath.Join(c.dir, file(i)))
	}
	return b.String()
}

func (c *contender) peerConfig(templates []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "log_level = \"err\"\nconsul {\n  address = %q\n}\n", c.consul.http)
	for i, t := range templates {
		fmt.Fprintf(&b, "template {\n  contents = %q\n  destination = %q\n}\n", t, filepath.Join(c.dir, file(i)))
	}
	return b.String()
}

// measure notes what the process takes now.
func (c *contender) measure() error {
	n, err := c.proc.sockets(c.consul.http)
	if err != nil {
		return err
	}
	c.cost.sockets = max(c.cost.sockets, n)
	c.cost.rss, c.cost.peak, err = c.proc.memory()
	return err
}

// change makes a change and returns how long it took until the files had the
// content that want names.
func (c *contender) change(ctx context.Context, want map[string]string, do func() error) (time.Duration, error) {
	c.seen.drain()
	begin := time.Now()
	if err := do(); err != nil {
		return 0, err
	}
	last, err := c.seen.await(ctx, c.proc, want)
	return last.Sub(begin), err
}

package sim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jorc/jorc/sim"
)

// mark begins the lines in which a worker says how a seed went; others are what it prints beside that.
const mark = "result "

// work runs the seeds that standard input names, a line each, and writes how each went.
func work(t *testing.T, dir string) {
	t.Helper()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var seed uint64
		if _, err := fmt.Sscan(lines.Text(), &seed); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(simulate(t, options(t, dir, seed)))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s%s\n", mark, text)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// share has n processes run seeds, and calls add with the result of each, one at a time. An interruption ends all of them.
func share(t *testing.T, dir string, n int, seeds iter.Seq[uint64], add func(uint64, sim.Result)) {
	t.Helper()
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	next, end := iter.Pull(seeds)
	defer end()
	var mu sync.Mutex
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return 0, false
		}
		return next()
	}
	var running sync.WaitGroup
	for range n {
		running.Go(func() {
			for seed, ok := take(); ok; {
				w, err := begin(ctx, dir)
				if err != nil {
					t.Error(err)
					return
				}
				for ok && err == nil {
					var got sim.Result
					if got, err = w.run(seed); ctx.Err() != nil {
						break
					}
					mu.Lock()
					add(seed, got)
					mu.Unlock()
					seed, ok = take()
				}
				if err = w.end(); err != nil && ctx.Err() == nil {
					fmt.Println(err)
				}
				ok = ok && ctx.Err() == nil
			}
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		t.Error("interrupted")
	}
}

// child is a process that runs seeds.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Reader
	said  strings.Builder // beside results
}

func begin(ctx context.Context, dir string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, program, "-test.run=^TestFaults$", "-test.timeout=0", "-sim.worker="+dir, "-sim.skip="+*skip, "-sim.only="+*only, "-sim.without="+*without, "-sim.dense="+*dense, "-sim.late="+strconv.FormatBool(*late))}
	c.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.lines, c.cmd.Stderr = bufio.NewReader(out), c.cmd.Stdout
	return c, c.cmd.Start()
}

// stuck is how long a seed may take: the longest takes some seconds. One that takes longer is ended with the stacks of
// its goroutines.
const stuck = 10 * time.Minute

// run runs a seed. An error says that the process has ended; the result then says so, too.
func (c *child) run(seed uint64) (got sim.Result, err error) {
	late := time.AfterFunc(stuck, func() { _ = c.cmd.Process.Signal(syscall.SIGQUIT) }) // fails where it has ended
	defer late.Stop()
	ended := func(err error) (sim.Result, error) {
		return sim.Result{Failed: fmt.Sprintf("0s: the process that ran it ended: %v", err)}, err
	}
	if _, err := fmt.Fprintln(c.in, seed); err != nil {
		return ended(err)
	}
	for {
		line, err := c.lines.ReadString('\n')
		if result, is := strings.CutPrefix(line, mark); is {
			err = json.Unmarshal([]byte(result), &got)
			return got, err
		}
		c.said.WriteString(line)
		if err != nil {
			return ended(err)
		}
	}
}

// end has the process end. It returns what it said if it ended otherwise.
func (c *child) end() error {
	err := c.in.Close()
	text, readErr := io.ReadAll(c.lines)
	c.said.Write(text)
	if err = errors.Join(err, readErr, c.cmd.Wait()); err != nil {
		return fmt.Errorf("a process ended: %w\n%s", err, c.said.String())
	}
	return nil
}

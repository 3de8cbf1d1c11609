package kv_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
)

// holderOf, set to the address of a Consul, makes the test's program a holder of a lock.
const holderOf = "KV_TEST_HOLDER_OF"

func TestMain(m *testing.M) {
	if address := os.Getenv(holderOf); address != "" {
		if err := hold(address, os.Stdin, os.Stdout); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(consultest.Main(m))
}

// hold takes the lock, says so, and for each line of in writes and says how that went.
func hold(address string, in io.Reader, out io.Writer) error {
	client, err := consul.New(config.Consul{Address: address})
	if err != nil {
		return err
	}
	h, err := kv.New(client, "jorc/default").Lock(context.Background(), "lock", quick)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "held")
	for lines := bufio.NewScanner(in); lines.Scan(); {
		_, err := h.Txn().Set("written", []byte(lines.Text())).Commit(context.Background())
		fmt.Fprintln(out, "wrote:", err)
	}
	return h.Release(context.Background())
}

// process is another process that holds the lock.
type process struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

func startHolder(t *testing.T, address string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holderOf+"="+address)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	p := &process{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	if got := p.line(); got != "held" {
		t.Fatalf("the holder says %q", got)
	}
	return p
}

func (p *process) line() string {
	p.out.Scan()
	return p.out.Text()
}

func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func TestTakeOverFromAKilledProcess(t *testing.T) {
	t.Parallel()
	s, srv := newStoreAlone(t)
	startHolder(t, srv.HTTPAddr).signal(t, syscall.SIGKILL)
	if err := mustLockWith(t, s, "lock", steady).Release(t.Context()); err != nil {
		t.Errorf("Unlock = %v", err)
	}
}

// TestAProcessThatSleptCannotWrite stops the holder's process until another
// holds the lock, and lets it continue as if it still held it.
func TestAProcessThatSleptCannotWrite(t *testing.T) {
	t.Parallel()
	s, srv := newStoreAlone(t)
	p := startHolder(t, srv.HTTPAddr)
	fmt.Fprintln(p.in, "first")
	if got := p.line(); got != "wrote: <nil>" {
		t.Fatalf("the holder says %q", got)
	}
	p.signal(t, syscall.SIGSTOP)
	h := mustLockWith(t, s, "lock", steady)
	fmt.Fprintln(p.in, "second")
	p.signal(t, syscall.SIGCONT)
	if got := p.line(); !strings.Contains(got, kv.ErrLockLost.Error()) {
		t.Errorf("the holder that slept says %q", got)
	}
	if got := mustGet(t, kv.NewText(s, "written")).Value; got != "first" {
		t.Errorf("it wrote %q", got)
	}
	if err := h.Err(); err != nil {
		t.Errorf("Err of the new holder = %v", err)
	}
}

// TestEpochsNeverGoBack lets holders write their epochs while the test keeps
// destroying their sessions: no write may succeed on top of a later holder's.
func TestEpochsNeverGoBack(t *testing.T) {
	t.Parallel()
	s, srv := newStoreAlone(t)
	type epoch struct {
		Epoch uint64 `json:"epoch"`
	}
	const holders, rounds = 4, 5
	var all sync.WaitGroup
	for range holders {
		mine := kv.New(srv.Client(), "jorc/default")
		all.Go(func() {
			for range rounds {
				h, err := mine.Lock(t.Context(), "lock", quick)
				if err != nil {
					t.Error(err)
					return
				}
				doc := kv.NewDoc[epoch](h.Store(), "epoch", 1)
				for range 20 {
					var before uint64
					_, err := doc.Update(t.Context(), func(old kv.Entry[epoch]) (epoch, bool, error) {
						before = old.Value.Epoch
						return epoch{h.Epoch()}, true, nil
					})
					if err == nil && before > h.Epoch() {
						t.Errorf("the holder of epoch %d wrote on top of epoch %d", h.Epoch(), before)
					}
				}
				_ = h.Release(t.Context()) // often lost by now
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var saboteur sync.WaitGroup
	saboteur.Go(func() {
		c := srv.Client()
		_ = consul.Watch(ctx, c, consul.Query{}, func(ctx context.Context, q consul.Query) (*consul.KVPair, consul.Meta, error) {
			return c.KVGet(ctx, s.Path("epoch"), q)
		}, func(u consul.Update[*consul.KVPair]) {
			p, _, err := c.KVGet(ctx, s.Path("lock"), consul.Query{})
			if err == nil && p != nil && p.Session != "" && u.Meta.Index%5 == 0 {
				_ = c.SessionDestroy(ctx, p.Session) // it may be gone
			}
		})
	})
	all.Wait()
	cancel()
	saboteur.Wait()
}

package slots_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
)

// holderOf, set to the address of a Consul, makes the test's program a holder
// of a slot.
const holderOf = "SLOTS_TEST_HOLDER_OF"

func TestMain(m *testing.M) {
	if address := os.Getenv(holderOf); address != "" {
		if err := hold(address); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// hold takes a slot, says so, and keeps it until it is lost.
func hold(address string) error {
	client, err := consul.New(config.Consul{Address: address})
	if err != nil {
		return err
	}
	s := slots.New(kv.New(client, "jorc/default"), quick)
	c, err := s.Acquire(context.Background(), "g", 1, holder("process"))
	if err != nil {
		return err
	}
	fmt.Println("held")
	<-c.Context().Done()
	return c.Err()
}

// startHolder returns when another process holds the slot, with what kills it.
func startHolder(t *testing.T, address string) (kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holderOf+"="+address)
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
	lines := bufio.NewScanner(out)
	if lines.Scan(); lines.Text() != "held" {
		t.Fatalf("the holder says %q", lines.Text())
	}
	return func() {
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAKilledHolder(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := host(t, srv.Client())
	kill := startHolder(t, srv.HTTPAddr)
	next := waiting(t, t.Context(), s, "g", holder("b"))
	kill()
	mustRelease(t, mustGet(t, next))
	kill = startHolder(t, srv.HTTPAddr)
	kill()
	mustRelease(t, mustAcquire(t, s, "g", 1, holder("c"))) // no claim waited when it died
}

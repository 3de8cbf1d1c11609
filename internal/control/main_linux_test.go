package control_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/control"
	"github.com/jorc/jorc/internal/leasetest"
)

// asAgent has this program serve on a socket until it is killed.
const asAgent = "JORC_TEST_CONTROL_SOCKET"

func TestMain(m *testing.M) {
	socket := os.Getenv(asAgent)
	if socket == "" {
		os.Exit(m.Run())
	}
	o := control.Options{Socket: socket, Holder: &leasetest.Holder{}, Version: "v1", Log: hclog.NewNullLogger()}
	fmt.Fprintln(os.Stderr, control.New(o).Run(context.Background()))
	os.Exit(1)
}

// TestKilled: the socket of an agent that was killed is replaced, and that of one that runs is not.
func TestKilled(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	agent := exec.CommandContext(t.Context(), os.Args[0])
	agent.Env = append(os.Environ(), asAgent+"="+h.Socket)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = agent.Process.Kill() // it may have ended
		_ = agent.Wait()
	})
	c := h.client(t)
	consultest.Eventually(t, "the agent", func(ctx context.Context) error {
		_, err := c.Status(ctx)
		return err
	})
	if err := control.New(h.Options).Listen(t.Context()); err == nil {
		t.Error("another agent took the socket of one that runs")
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Errorf("the agent: %v", err)
	}
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait() // it was killed
	if _, err := os.Lstat(h.Socket); err != nil {
		t.Errorf("the killed agent left no socket: %v", err)
	}
	h.serve(t)
	if _, err := c.Status(t.Context()); err != nil {
		t.Errorf("the next agent: %v", err)
	}
}

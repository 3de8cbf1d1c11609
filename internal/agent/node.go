package agent

import (
	"context"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
)

// learnNode asks Consul for the node's name, if the configuration has none.
func (a *Agent) learnNode(ctx context.Context) error {
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		if _, err := a.nodeName(ctx); err == nil || concurrency.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// nodeName is this host's name in Consul.
func (a *Agent) nodeName(ctx context.Context) (string, error) {
	a.mu.Lock()
	name := a.node
	a.mu.Unlock()
	if name != "" {
		return name, nil
	}
	self, err := a.client.AgentSelf(ctx)
	if err != nil {
		return "", err
	}
	return a.setNode(self.Config.NodeName), nil
}

// setNode makes name the node's unless it has one, and returns which it has.
func (a *Agent) setNode(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.node == "" {
		a.node = name
		close(a.named)
	}
	return a.node
}

// awaitNode returns the node's name once it is known, or ctx's error.
func (a *Agent) awaitNode(ctx context.Context) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-a.named:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node, nil
}

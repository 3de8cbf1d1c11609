package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

// rights tells an empty answer from one that the token may not see: Consul
// filters silently, for anonymous tokens without even saying so.
type rights struct {
	client *consul.Client

	mu    sync.Mutex
	asked map[consul.Right]time.Time // those that were granted
}

// rightsFor is how long a granted right is taken for granted.
const rightsFor = time.Minute

func newRights(c *consul.Client) *rights {
	return &rights{client: c, asked: map[consul.Right]time.Time{}}
}

// believe returns ErrDenied for an answer that may be short for want of rights.
func (r *rights) believe(ctx context.Context, d *dependency, filtered, empty bool) error {
	right := rightFor(d)
	if filtered {
		return denied(d, right, "Consul left out what the token may not see")
	}
	if !empty {
		r.mu.Lock()
		delete(r.asked, right) // should it become empty, that has to be asked about
		r.mu.Unlock()
		return nil
	}
	if right.Resource == "" || d.scope.datacenter != "" || d.scope.peer != "" {
		return nil
	}
	r.mu.Lock()
	granted := time.Since(r.asked[right]) < rightsFor
	r.mu.Unlock()
	if granted {
		return nil
	}
	ok, err := r.client.Authorize(ctx, right)
	if err != nil {
		return err
	}
	if !ok[0] {
		return denied(d, right, "the answer is empty and the token may not see more")
	}
	r.mu.Lock()
	r.asked[right] = time.Now()
	r.mu.Unlock()
	return nil
}

// rightsAtOnce is the number of rights that Consul answers in one request.
const rightsAtOnce = 64

// confirm notes in refused which of the keys, of one scope and at most
// rightsAtOnce, the token may not read.
func (r *rights) confirm(ctx context.Context, keys []*dependency, refused map[string]error) error {
	if keys[0].scope.datacenter != "" {
		return r.confirmElsewhere(ctx, keys, refused)
	}
	ask := make([]consul.Right, len(keys))
	for i, d := range keys {
		ask[i] = rightFor(d)
	}
	ok, err := r.client.Authorize(ctx, ask...)
	if err != nil {
		return err
	}
	for i, d := range keys {
		if !ok[i] {
			refused[d.id] = denied(d, ask[i], "the token may not see it")
		}
	}
	return nil
}

// confirmElsewhere asks another datacenter, whose rights only its answers tell.
func (r *rights) confirmElsewhere(ctx context.Context, keys []*dependency, refused map[string]error) error {
	for _, d := range keys {
		_, _, err := r.client.KVGet(ctx, d.name, d.scope.query())
		if errors.Is(err, consul.ErrDenied) {
			refused[d.id] = err
		} else if err != nil {
			return err
		}
	}
	return nil
}

func rightFor(d *dependency) consul.Right {
	switch d.kind {
	case kindKey:
		return consul.Right{Resource: "key", Access: "read", Segment: d.name}
	case kindPrefix:
		return consul.Right{Resource: "key", Access: "read", Segment: d.name}
	case kindService, kindConnect:
		return consul.Right{Resource: "service", Access: "read", Segment: d.name}
	case kindNode, kindNodes:
		return consul.Right{Resource: "node", Access: "read", Segment: d.name}
	case kindServices:
		return consul.Right{Resource: "service", Access: "read", Segment: "consul"}
	}
	return consul.Right{}
}

func denied(d *dependency, right consul.Right, what string) error {
	return &consul.Error{
		Op: "read " + string(d.kind), Name: d.name, Class: consul.ErrDenied,
		Err: fmt.Errorf("%s: grant %s:%s on %q", what, right.Resource, right.Access, right.Segment),
	}
}

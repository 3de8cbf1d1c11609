package trigger_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestFiltered: instances that the token may not see any more are not gone.
func TestFiltered(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	b := newBed(t, s)
	may := b.client
	conf := config.Trigger{Name: "s", Service: "web", Workflow: "note"}
	b.register("web1", 80)
	stop := b.run(conf)
	b.wantKnown("s")
	stop()

	proxy := s.Proxy()
	less := proxy.Config()
	less.Token = config.Secret(s.NewToken(`node_prefix "" { policy = "read" }`))
	client, err := consul.New(less)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	b.client = client
	stop = b.run(conf)
	consultest.Eventually(t, "two looks", func(context.Context) error {
		if proxy.Asked("/v1/health/service/web") < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	stop()

	b.client = may
	b.register("web2", 81)
	stop = b.run(conf)
	b.wantChanges("added " + s.Node + "/web2")
	stop()
}

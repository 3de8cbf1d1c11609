package consul_test

import (
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

func TestDate(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	c := s.ClientWithToken("") // needs no rights
	before := time.Now().Truncate(time.Second)
	got, err := c.Date(t.Context())
	if after := time.Now(); err != nil || got.Before(before) || got.After(after) {
		t.Errorf("got %v, %v; want %v to %v", got, err, before, after)
	}
}

// TestTokenFileOfTheEnvironment: a token file that comes and goes is jorc's own
// affair; the API must not look for it.
func TestTokenFileOfTheEnvironment(t *testing.T) {
	t.Setenv("CONSUL_HTTP_TOKEN_FILE", "/no/such/file")
	c, err := consul.New(config.Consul{Address: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// Package discover takes the place of Consul's library of cloud providers in the Consul that tests run against: retry_join with
// provider=… is an error there. The library is a quarter of what is compiled for Consul, and no test has a cloud.
package discover

import (
	"fmt"
	"log"
)

// Provider is one that Consul names. None is asked.
type Provider any

// Providers is empty: this Consul knows no cloud.
var Providers map[string]Provider

// Discover knows no provider.
type Discover struct{}

// Option has no effect.
type Option struct{}

// New returns a Discover that knows no provider.
func New(...Option) (*Discover, error) { return &Discover{}, nil }

// WithUserAgent has no effect.
func WithUserAgent(string) Option { return Option{} }

// WithProviders has no effect.
func WithProviders(map[string]Provider) Option { return Option{} }

// Names returns no name.
func (*Discover) Names() []string { return nil }

// Addrs returns an error that says how this Consul was built.
func (*Discover) Addrs(conf string, _ *log.Logger) ([]string, error) {
	return nil, fmt.Errorf("%q: this Consul was built for tests, without cloud providers", conf)
}

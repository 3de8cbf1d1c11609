package config

import (
	"path/filepath"
	"time"
)

const (
	defaultStateDir     = "/var/lib/jorc"
	defaultPrefix       = "jorc"
	defaultCluster      = "default"
	defaultHTTPAddr     = "127.0.0.1:8520"
	defaultConsulAddr   = "127.0.0.1:8500"
	defaultDNSAddr      = "127.0.0.1:8600"
	defaultDNSPort      = 8600
	defaultConnections  = 64
	leastConnections    = 8
	defaultRequiresFor  = "functional"
	defaultEmptyAfter   = 30 * time.Second
	defaultShrinkAfter  = 5 * time.Minute
	defaultCommandTime  = 30 * time.Second
	defaultRenderTime   = 10 * time.Second
	defaultMaxOutput    = 64 << 20
	defaultNetworkCheck = 10 * time.Second
	defaultScriptCheck  = 30 * time.Second
	defaultCycle        = 10 * time.Second
	defaultValidation   = 5 * time.Minute
)

// Default is what holds when nothing is configured.
func Default() Config {
	c := base()
	c.derive()
	return c
}

// base is Default without what depends on other settings.
func base() Config {
	return Config{
		Cluster:      defaultCluster,
		Prefix:       defaultPrefix,
		StateDir:     defaultStateDir,
		OnStop:       "keep",
		LogLevel:     "info",
		HTTP:         HTTP{Addr: defaultHTTPAddr},
		Consul:       Consul{Address: defaultConsulAddr, MaxConnections: defaultConnections},
		DNS:          DNS{Addr: defaultDNSAddr},
		TemplateOpts: TemplateOptions{RenderTimeout: defaultRenderTime, MaxOutput: defaultMaxOutput},
	}
}

// derive fills in what follows from other settings.
func (c *Config) derive() {
	if c.VersionFile == "" {
		c.VersionFile = filepath.Join(c.StateDir, "version")
	}
}

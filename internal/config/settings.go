package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

var logLevels = []string{"trace", "debug", "info", "warn", "error", "off"}

// checkSettings looks at what files, environment and flags can set, once it
// is known which of them won.
func (d *decoder) checkSettings(c *Config) {
	d.setting("prefix", keyPrefix(c.Prefix))
	if c.Cluster != "" {
		d.setting("cluster", segment(c.Cluster))
	}
	if c.Node != "" {
		d.setting("node", segment(c.Node))
	}
	d.setting("on_stop", among(c.OnStop, onStopWords))
	d.setting("log_level", among(c.LogLevel, logLevels))
	if c.HTTP.Addr != "" {
		d.setting("http.addr", listenAddr(c.HTTP.Addr))
	}
	if c.DNS.Addr != "system" {
		addr, err := parseAddress(c.DNS.Addr)
		d.setting("dns.addr", err)
		if addr.Port == 0 {
			addr.Port = defaultDNSPort
		}
		if err == nil {
			c.DNS.Addr = net.JoinHostPort(addr.Host, strconv.Itoa(addr.Port))
		}
	}
	d.setting("consul.address", consulAddr(c.Consul.Address))
	if (c.Consul.ClientCert == "") != (c.Consul.ClientKey == "") {
		name := "consul.client_cert"
		if c.Consul.ClientCert == "" {
			name = "consul.client_key"
		}
		d.setting(name, errors.New("a client certificate and its key belong together: set both client_cert and client_key"))
	}
	if c.Vault.Address != "" {
		d.setting("vault.address", vaultAddr(c.Vault.Address))
	}
}

// setting reports a setting at the place it comes from.
func (d *decoder) setting(name string, err error) {
	if err == nil {
		return
	}
	from := d.settings[name]
	where := strconv.Quote(name)
	if from.name != "" {
		where = from.name
	} else if i := strings.LastIndexByte(name, '.'); i >= 0 && from.rng != (hcl.Range{}) {
		where = strconv.Quote(name[i+1:])
	}
	d.errorf(from.rng, "Invalid setting", "%s: %v.", where, err)
}

func among(s string, words []string) error {
	if slices.Contains(words, s) {
		return nil
	}
	if best := closest(s, words); best != "" {
		return fmt.Errorf("must be %s, not %q (did you mean %q?)", list(words, "or"), s, best)
	}
	return fmt.Errorf("must be %s, not %q", list(words, "or"), s)
}

// listenAddr checks "host:port"; an empty host and port 0 are possible.
func listenAddr(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf(`%q is no address to listen on: write "127.0.0.1:8520"`, s)
	}
	return nil
}

// consulAddr checks "host:port" or a URL with http, https or unix. What could
// be a password is not repeated.
func consulAddr(s string) error {
	scheme, rest, isURL := strings.Cut(s, "://")
	switch {
	case strings.Contains(s, "@"):
		return errors.New("an address must not contain a user or password")
	case !isURL:
		_, err := parseAddress(s)
		return err
	case scheme == "unix" && strings.HasPrefix(rest, "/"):
		return nil
	case scheme == "http" || scheme == "https":
		u, err := url.Parse(s)
		if err != nil || u.RawQuery != "" || u.Fragment != "" {
			return fmt.Errorf("%q is no address", s)
		}
		_, err = parseAddress(u.Host)
		return err
	}
	return fmt.Errorf(`%q is no address: write "127.0.0.1:8500", "https://host:8501" or "unix:///path"`, s)
}

func vaultAddr(s string) error {
	if strings.Contains(s, "@") {
		return errors.New("an address must not contain a user or password")
	}
	return webURL(s)
}

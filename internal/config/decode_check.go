package config

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/hashicorp/hcl/v2"
)

var checkKinds = []string{"script", "http", "tcp", "udp", "grpc", "h2ping", "ttl", "alias_service"}

// checkAt is a check and where it stands.
type checkAt struct {
	check Check
	rng   hcl.Range
}

func checkFields(c *Check) fields {
	return fields{
		"id":              nonEmpty(&c.ID),
		"name":            text(&c.Name),
		"notes":           text(&c.Notes),
		"script":          command(&c.Script),
		"http":            parsed(&c.HTTP, webURL),
		"method":          nonEmpty(&c.Method),
		"header":          headers(&c.Header),
		"body":            text(&c.Body),
		"tcp":             parsed(&c.TCP, hostPort),
		"udp":             parsed(&c.UDP, hostPort),
		"grpc":            nonEmpty(&c.GRPC),
		"grpc_use_tls":    boolean(&c.GRPCTLS),
		"h2ping":          parsed(&c.H2Ping, hostPort),
		"ttl":             interval(&c.TTL),
		"alias_service":   parsed(&c.Alias, serviceName),
		"interval":        interval(&c.Interval),
		"timeout":         interval(&c.Timeout),
		"tls_server_name": nonEmpty(&c.TLSServerName),
		"tls_skip_verify": boolean(&c.TLSSkipVerify),
		"status":          oneOf(&c.Status, "passing", "warning", "critical"),

		"success_before_passing":            count(&c.SuccessBeforePassing),
		"failures_before_warning":           count(&c.FailuresBeforeWarning),
		"failures_before_critical":          count(&c.FailuresBeforeCritical),
		"deregister_critical_service_after": interval(&c.DeregisterCriticalServiceAfter),
	}
}

func (d *decoder) check(b *hcl.Block) checkAt {
	c := checkAt{rng: b.TypeRange}
	have := d.body(b.Body, checkFields(&c.check), nil)
	d.finishCheck(&c, have)
	return c
}

// finishCheck holds a check's parts against each other.
func (d *decoder) finishCheck(c *checkAt, have present) {
	if at, ok := have["id"]; ok {
		c.rng = at
	}
	d.exactlyOne(have, c.rng, "A check", checkKinds...)
	_, timed := have["interval"]
	passive := ""
	for _, kind := range []string{"ttl", "alias_service"} {
		if _, ok := have[kind]; ok {
			passive = kind
		}
	}
	active := false
	for _, kind := range checkKinds {
		if _, ok := have[kind]; ok && kind != passive {
			active = true
		}
	}
	switch {
	case active && !timed && passive == "":
		d.errorf(c.rng, "Missing argument", `A check of this kind needs an interval, such as interval = "10s".`)
	case passive != "" && timed && !active:
		d.errorf(have["interval"], "Conflicting arguments", "A check with %s is not run at intervals.", passive)
	}
	for _, name := range []string{"method", "header", "body"} {
		at, ok := have[name]
		if _, web := have["http"]; ok && !web && active {
			d.errorf(at, "Conflicting arguments", "%q belongs to checks with http.", name)
		}
	}
	if w, k := c.check.FailuresBeforeWarning, c.check.FailuresBeforeCritical; w > k && k > 0 {
		d.errorf(have["failures_before_warning"], "Invalid number", `"failures_before_warning" must not be more than "failures_before_critical".`)
	}
	if c.check.Timeout == 0 && passive == "" {
		c.check.Timeout = checkTimeout(&c.check)
	}
}

// checkTimeout is Consul's own default for the kind of check.
func checkTimeout(c *Check) time.Duration {
	if c.Script != nil || c.Shell != "" {
		return defaultScriptCheck
	}
	return defaultNetworkCheck
}

// headers reads name → value or list of values.
func headers(p *map[string][]string) field {
	return func(d *decoder, a *hcl.Attribute) {
		all := map[string][]string{}
		d.members(a.Expr, a.Name, func(key string, v hcl.Expression) {
			if kindOf(v) == kindString {
				s, _ := d.str(v, key)
				all[key] = []string{s}
				return
			}
			var values []string
			texts(&values)(d, &hcl.Attribute{Name: key, Expr: v, Range: v.Range(), NameRange: v.Range()})
			all[key] = values
		})
		*p = all
	}
}

func webURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return errors.New(`write a URL such as "http://127.0.0.1:8080/health"`)
	}
	return nil
}

func hostPort(s string) error {
	a, err := parseAddress(s)
	if err == nil && a.Port == 0 {
		err = fmt.Errorf("%q has no port", s)
	}
	return err
}

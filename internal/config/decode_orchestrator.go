package config

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/hashicorp/hcl/v2"
)

// Kinds of sinks.
const (
	SinkLog     = "log"
	SinkFile    = "file"
	SinkWebhook = "webhook"
)

func (d *decoder) orchestrator(b *hcl.Block) *Orchestrator {
	o := &Orchestrator{Enabled: true, Interval: defaultCycle}
	d.body(b.Body, fields{
		"enabled":  boolean(&o.Enabled),
		"interval": interval(&o.Interval),
		"clusters": names(&o.Clusters, segment),
	}, nested{"sink": {label: "kind", read: func(b *hcl.Block) { o.Sinks = append(o.Sinks, d.sink(b)) }}})
	return o
}

// sink reads where events go. What one kind has not is an error in it.
func (d *decoder) sink(b *hcl.Block) EventSink {
	s := EventSink{Kind: b.Labels[0]}
	label := "Sink " + strconv.Quote(s.Kind)
	switch s.Kind {
	case SinkLog:
		d.body(b.Body, fields{}, nil)
		d.claim("sink", "", s.Kind, b.LabelRanges[0], plain)
	case SinkFile:
		have := d.body(b.Body, fields{"path": file(&s.Path)}, nil)
		d.required(have, b.LabelRanges[0], label, "path")
		if s.Path != "" {
			d.claim("sink", SinkFile, s.Path, have["path"], plain)
		}
	case SinkWebhook:
		have := d.body(b.Body, fields{
			"url": parsed(&s.URL, webAddress), "secret": forbidden("secret_file"), "secret_file": file(&s.SecretFile),
		}, nil)
		d.required(have, b.LabelRanges[0], label, "url")
		if s.URL != "" {
			d.claim("sink", SinkWebhook, s.URL, have["url"], plain)
		}
	default:
		kinds := []string{SinkLog, SinkFile, SinkWebhook}
		d.errorf(b.LabelRanges[0], "Unknown sink", "A sink can be %s, not %q.%s", list(kinds, "or"), s.Kind, suggest(s.Kind, kinds))
	}
	return s
}

// webAddress checks that something can be posted to an address. The message does
// not repeat it: it may hold a secret.
func webAddress(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return fmt.Errorf("it is no address")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("it must begin with http:// or https://")
	case u.Host == "":
		return fmt.Errorf("it names no host")
	}
	return nil
}

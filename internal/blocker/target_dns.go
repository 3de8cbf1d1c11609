package blocker

import (
	"fmt"
	"slices"
	"strings"
)

const (
	maxLabel = 63
	maxName  = 253
)

// kinds are the labels by which Consul recognises what is asked for.
var kinds = []string{"service", "connect", "virtual", "ingress", "node", "query", "addr"}

// DNSName is the name that stands for t in Consul's DNS. The error says why
// there is none: Consul takes a name from DNS as it is spelled on paper, so a
// service whose name needs escapes there cannot be asked for.
func (t Target) DNSName() (string, error) {
	if t.Name != "" {
		return t.Name, nil
	}
	name := t.Service + ".service."
	if t.Tag != "" {
		name = t.Tag + "." + name
	}
	if t.Datacenter != "" {
		name += t.Datacenter + "."
	}
	name += "consul."
	if err := t.askable(name); err != nil {
		return "", fmt.Errorf("%q cannot be asked for over DNS: %w", t.Ident(), err)
	}
	return name, nil
}

func (t Target) askable(name string) error {
	if len(name) > maxName+1 {
		return fmt.Errorf("%s has %d characters, DNS holds %d", name, len(name)-1, maxName)
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if label == "" {
			return fmt.Errorf("the tag %q has an empty part", t.Tag)
		}
		if len(label) > maxLabel {
			return fmt.Errorf("%q has %d bytes, a part of a DNS name holds %d", label, len(label), maxLabel)
		}
		for _, r := range label {
			if r <= ' ' || r > '~' || strings.ContainsRune(`."\;()@'`, r) {
				return fmt.Errorf("it contains %q", r)
			}
		}
	}
	if strings.HasPrefix(t.Service, "_") && strings.HasPrefix(t.Tag, "_") && !strings.Contains(t.Tag, ".") {
		return fmt.Errorf("with underscores Consul takes %q for the service and %q for the tag (RFC 2782)", t.Tag[1:], t.Service[1:])
	}
	if dc := strings.ToLower(t.Datacenter); slices.Contains(kinds, dc) || strings.HasPrefix(dc, "_") {
		return fmt.Errorf("a datacenter named %q means something else there", t.Datacenter)
	}
	return nil
}

// checkName tells what is wrong with a full DNS name; text may go on behind it.
func (p *parser) name(s string) string {
	if s == "." {
		p.fail(0, "the root is not a name to wait for")
		return s
	}
	if len(s) > maxName+1 {
		p.fail(maxName, "longer than the %d characters that DNS holds", maxName)
	}
	at := 0
	for label := range strings.SplitSeq(strings.TrimSuffix(s, "."), ".") {
		if label == "" {
			p.fail(at, "an empty part between dots")
		}
		if len(label) > maxLabel {
			p.fail(at+maxLabel, "a part of a DNS name holds %d characters", maxLabel)
		}
		for i, r := range label {
			if r <= ' ' || r > '~' || strings.ContainsRune(`"\;()@'`, r) {
				p.fail(at+i, "%q cannot be part of a DNS name here", r)
			}
		}
		at += len(label) + 1
	}
	return s
}

// service is what to watch over HTTP to hear of changes of t: itself, or the
// service behind "[TAG.]SERVICE.service[.DC].consul.".
func (t Target) service() (ServiceQuery, bool) {
	if t.Name == "" {
		return ServiceQuery{Service: t.Service, Tag: t.Tag, Datacenter: t.Datacenter}, true
	}
	labels := strings.Split(strings.TrimSuffix(t.Name, "."), ".")
	n := len(labels)
	var q ServiceQuery
	switch {
	case n < 3 || !strings.EqualFold(labels[n-1], "consul"):
		return q, false
	case strings.EqualFold(labels[n-2], "service"):
		labels = labels[:n-2]
	case n > 3 && strings.EqualFold(labels[n-3], "service"):
		q.Datacenter = labels[n-2]
		labels = labels[:n-3]
	default:
		return q, false
	}
	q.Service = labels[len(labels)-1]
	q.Tag = strings.Join(labels[:len(labels)-1], ".")
	if strings.HasPrefix(q.Service, "_") {
		return q, false // RFC 2782: asked for without a wake-up
	}
	return q, true
}

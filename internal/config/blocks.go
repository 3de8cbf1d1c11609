package config

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/hashicorp/hcl/v2"

	"github.com/jorc/jorc/internal/schedule"
	"github.com/jorc/jorc/internal/text"
)

func (d *decoder) template(b *hcl.Block) Template {
	t := Template{
		Name: b.Labels[0], Pos: position(b.TypeRange),
		CheckTimeout: defaultCommandTime, ReloadTimeout: defaultCommandTime,
		ShrinkAfter: defaultShrinkAfter, EmptyAfter: defaultEmptyAfter, OnEdit: OnEditRestore,
	}
	d.claim("template", "", t.Name, b.LabelRanges[0], text.CheckSegment)
	args := d.decode(b.Body, b.LabelRanges[0], &t, custom{
		"check":          d.command(&t.Check),
		"check_timeout":  d.interval(&t.CheckTimeout),
		"reload":         d.command(&t.Reload),
		"reload_timeout": d.interval(&t.ReloadTimeout),
		"max_shrink":     d.amount(&t.MaxShrink, 0, checkShrink),
		"shrink_after":   d.duration(&t.ShrinkAfter),
		"empty_after":    d.duration(&t.EmptyAfter),
		"wait":           d.wait(&t.Wait),
	}, nested{"requires": d.requires(&t.Requires), "stage": d.stage(&t)})
	args.notEmpty("user", "group", "left_delim", "right_delim")
	args.valid("perms", checkPerms(t.Perms))
	args.valid("together", text.CheckSegment(t.Together))
	args.between(0, maxHolders, "min_instances")
	if _, empty := t.MinInstances[""]; empty {
		d.errorf(args.at("min_instances"), "Invalid value", "%q names no service.", "min_instances")
	}
	args.oneOf("on_edit", OnEditRestore, OnEditReport)
	label := "Template " + strconv.Quote(t.Name)
	owner := fmt.Sprintf("template %q", t.Name)
	args.exactlyOne(label, "source", "contents")
	args.required(label, "destination")
	args.ownPath("source", &t.Source, owner)
	args.path("sandbox_path", &t.SandboxPath)
	d.destination(args, &t, owner)
	t.MaxParallel = args.slot(t.Slot, t.MaxParallel)
	return t
}

// destination checks that a destination is the absolute path of a file, and
// keeps it for the checks across templates.
func (d *decoder) destination(args *arguments, t *Template, owner string) {
	rng := args.at("destination")
	if !args.ok("destination") || !d.validPath(rng, "destination", t.Destination) {
		return
	}
	last := t.Destination[strings.LastIndexByte(t.Destination, '/')+1:]
	switch {
	case !absolute(t.Destination):
		d.errorf(rng, "Invalid path", "%q must be an absolute path, not %q.", "destination", t.Destination)
	case last == "" || last == "." || last == "..":
		d.errorf(rng, "Invalid path", "%q must name a file, not the directory %q.", "destination", t.Destination)
	default:
		d.destinations = append(d.destinations, place{value: t.Destination, rng: rng, owner: owner})
		if t.Backup {
			d.destinations = append(d.destinations, place{value: t.Destination + ".bak", rng: rng, owner: backupOf(owner)})
		}
	}
}

// backupOf is the owner of a template's backup.
func backupOf(owner string) string { return "the backup of " + owner }

// requires decodes blocks `requires "TARGET"`.
func (d *decoder) requires(p *[]Requires) blockType {
	return blockType{label: "target", read: func(b *hcl.Block) {
		r := Requires{Target: b.Labels[0], Count: 1, For: defaultRequiresFor, Pos: position(b.TypeRange)}
		if strings.TrimSpace(r.Target) == "" {
			d.errorf(b.LabelRanges[0], "Invalid requires", `A requires block needs a target: requires "mysql".`)
		}
		args := d.decode(b.Body, b.LabelRanges[0], &r, nil, nil)
		args.between(1, math.MaxInt32, "count")
		args.oneOf("for", "functional", "addressable", "reachable")
		*p = append(*p, r)
	}}
}

// amount decodes a share such as "50%", or a number of at least least; check says what is
// wrong with a text.
func (d *decoder) amount(p *string, least int64, check func(string) error) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		if kindOf(a.Expr) == kindNumber {
			if n, ok := d.whole(a.Expr, a.Name); ok {
				d.limits(a.Expr, a.Name, least, math.MaxInt32)
				*p = strconv.Itoa(n)
			}
			return
		}
		s, ok := d.str(a.Expr, a.Name)
		if !ok {
			return
		}
		if err := check(s); err != nil {
			d.errorf(a.Expr.Range(), "Invalid value", "%q: %v.", a.Name, err)
		}
		*p = s
	}
}

func (d *decoder) workflow(b *hcl.Block) Workflow {
	w := Workflow{Name: b.Labels[0]}
	d.claim("workflow", "", w.Name, b.LabelRanges[0], text.CheckSegment)
	tasks, scope := 0, b.LabelRanges[0].String() // unique even when two workflows have one name
	args := d.decode(b.Body, b.LabelRanges[0], &w, nil, nested{"task": {label: "name", read: func(b *hcl.Block) {
		tasks++
		w.Tasks = append(w.Tasks, d.task(b, scope))
	}}})
	args.names("allow_params", w.AllowParams, text.CheckParam)
	if tasks == 0 {
		d.errorf(b.LabelRanges[0], "Empty workflow", "Workflow %q has no task.", w.Name)
	}
	return w
}

func (d *decoder) task(b *hcl.Block, scope string) Task {
	t := Task{Name: b.Labels[0], OkExitCodes: []int{0}}
	d.claim("task", scope, t.Name, b.LabelRanges[0], text.CheckSegment)
	args := d.decode(b.Body, b.LabelRanges[0], &t, custom{
		"command":     d.command(&t.Command),
		"timeout":     d.duration(&t.Timeout),
		"kill_grace":  d.interval(&t.KillGrace),
		"retry_delay": d.duration(&t.RetryDelay),
		"only_if":     d.program(&t.OnlyIf),
	}, nested{"requires": d.requires(&t.Requires)})
	if t.Timeout == 0 && args.has("timeout") {
		t.Timeout = NoTimeout
	}
	args.notEmpty("script", "user")
	args.path("dir", &t.Dir)
	args.ownPath("token_file", &t.TokenFile, fmt.Sprintf("the token file of task %q", t.Name))
	args.between(0, math.MaxInt32, "retries")
	args.between(0, math.MaxUint8, "ok_exit_codes")
	if args.ok("ok_exit_codes") && len(t.OkExitCodes) == 0 {
		d.errorf(args.at("ok_exit_codes"), "Empty list", "%q must name at least one exit code.", "ok_exit_codes")
	}
	args.exactlyOne("Task "+strconv.Quote(t.Name), "command", "script")
	return t
}

func (d *decoder) trigger(b *hcl.Block) Trigger {
	t := Trigger{Name: b.Labels[0], Pos: position(b.TypeRange)}
	d.claim("trigger", "", t.Name, b.LabelRanges[0], text.CheckSegment)
	args := d.decode(b.Body, b.LabelRanges[0], &t, custom{"splay": d.duration(&t.Splay)}, nil)
	args.valid("service", checkServiceName(t.Service))
	args.notEmpty("key", "prefix", "event", "schedule", "zone", "missed")
	label := "Trigger " + strconv.Quote(t.Name)
	args.exactlyOne(label, "service", "key", "prefix", "event", "schedule")
	args.schedule(&t)
	args.required(label, "workflow")
	args.workflow("workflow", label, d.warnf)
	return t
}

// schedule checks a trigger's schedule, and that nothing of one is set without it.
func (a *arguments) schedule(t *Trigger) {
	for _, name := range []string{"zone", "splay", "missed"} {
		if a.has(name) && !a.has("schedule") {
			a.d.errorf(a.at(name), "Conflicting arguments", "%q belongs to a %q, which trigger %q does not have.", name, "schedule", t.Name)
		}
	}
	a.oneOf("missed", schedule.Skip, schedule.RunOnce)
	if a.ok("splay") && t.Splay > schedule.MaxSplay {
		a.d.errorf(a.at("splay"), "Invalid value", "%q must be at most %v.", "splay", schedule.MaxSplay)
	}
	if !a.ok("schedule") || t.Schedule == "" {
		return
	}
	t.Zone, t.Missed = cmp.Or(t.Zone, "UTC"), cmp.Or(t.Missed, schedule.Skip)
	_, err := schedule.Parse(t.Schedule, t.Zone)
	at := "schedule"
	if _, zone := schedule.Parse("@daily", t.Zone); zone != nil && a.has("zone") {
		at = "zone"
	}
	a.valid(at, err)
}

// workflow keeps the name of a workflow, which may be defined later; report reports that
// it is not.
func (a *arguments) workflow(name, owner string, report reporter) {
	a.notEmpty(name)
	if value := a.text(name); value != "" {
		a.d.workflowRefs = append(a.d.workflowRefs, place{value: value, rng: a.at(name), owner: owner, report: report})
	}
}

// checkWorkflows warns about workflows that are not defined: they fail when they
// run, everything else on this host works. Without the static workflow the host never
// runs a version.
func (d *decoder) checkWorkflows(c *Config) {
	known := make([]string, 0, len(c.Workflows))
	for _, w := range c.Workflows {
		known = append(known, w.Name)
	}
	for _, ref := range d.workflowRefs {
		if !slices.Contains(known, ref.value) {
			ref.report(ref.rng, "Unknown workflow", "%s names the workflow %q, which is not defined.%s", ref.owner, ref.value, didYouMean(ref.value, known))
		}
	}
}

func (d *decoder) static(b *hcl.Block) *Static {
	s := &Static{ValidationInterval: defaultValidation}
	args := d.decode(b.Body, b.TypeRange, s, custom{"validation_interval": d.interval(&s.ValidationInterval)}, nil)
	args.required("A static block", "workflow")
	args.workflow("workflow", "The static block", d.faultf)
	args.workflow("validation", "The static block", d.warnf)
	if !args.ok("paths") {
		return s
	}
	items, _ := d.elements(args.attrs["paths"].Expr, "paths")
	for i, item := range items {
		if !d.validPath(item.Range(), nth("paths", i), s.Paths[i]) {
			continue
		}
		if err := checkGlob(s.Paths[i]); err != nil {
			d.errorf(item.Range(), "Invalid path", "%v.", err)
			continue
		}
		d.staticPaths = append(d.staticPaths, place{value: s.Paths[i], rng: item.Range()})
	}
	return s
}

// maxAlternatives limits the number of paths that the braces of a pattern
// expand to.
const maxAlternatives = 1000

func checkGlob(s string) error {
	switch {
	case !absolute(s):
		return fmt.Errorf("a static path must be absolute, %q is not", s)
	case !doublestar.ValidatePattern(s):
		return fmt.Errorf("%q is not a valid pattern", s)
	}
	_, rest := doublestar.SplitPattern(s)
	if isGlob(s) && strings.Contains("/"+rest+"/", "/../") {
		return fmt.Errorf(`".." cannot follow a wildcard in %q`, s)
	}
	n := 1
	for group := range strings.SplitSeq(s, "{") {
		if n *= strings.Count(group, ",") + 1; n > maxAlternatives {
			return fmt.Errorf("the braces of %q expand to more than %d paths", s, maxAlternatives)
		}
	}
	return nil
}

// maxSocketName bounds the last part of a socket's path, which the kernel gets behind the number of its open
// directory.
const maxSocketName = 64

func (d *decoder) control(b *hcl.Block, c *Control) {
	args := d.decode(b.Body, b.TypeRange, c, nil, nil)
	args.ownPath("socket", &c.Socket, "the control socket")
	args.notEmpty("group")
	if name := c.Socket[strings.LastIndexByte(c.Socket, '/')+1:]; args.ok("socket") && c.Socket != "" && (len(name) > maxSocketName || name == "" || name == "." || name == "..") {
		d.errorf(args.at("socket"), "Invalid path", "%q must end with a name of at most %d bytes, not with %q.", "socket", maxSocketName, name)
	}
	if args.ok("group") && !args.has("socket") {
		d.errorf(args.at("group"), "Missing argument", "Only jorc can enter its state directory: a group needs a %q in a directory that its members can enter, such as %q.", "socket", "/run/jorc/control.sock")
	}
}

func (d *decoder) fleetLock(b *hcl.Block) *FleetLock {
	f := &FleetLock{Pos: position(b.TypeRange)}
	args := d.decode(b.Body, b.TypeRange, f, custom{"drain": d.duration(&f.Drain)}, nil)
	args.names("users", f.Users, text.CheckVisible)
	if args.ok("drain") && f.Drain > MostDrain {
		d.errorf(args.at("drain"), "Invalid value", "%q must be at most %v.", "drain", MostDrain)
	}
	return f
}

func (d *decoder) member(b *hcl.Block) *Member {
	m := &Member{}
	args := d.decode(b.Body, b.TypeRange, m, custom{"params": d.anyMap(&m.Params), "meta": d.anyMap(&m.Meta)}, nil)
	args.names("roles", m.Roles, text.CheckSegment)
	args.names("provides", m.Provides, checkServiceName)
	args.valid("zone", text.CheckSegment(m.Zone))
	args.workflow("on_lead", "The member block", d.warnf)
	args.workflow("on_step_down", "The member block", d.warnf)
	return m
}

func (d *decoder) orchestrator(b *hcl.Block) *Orchestrator {
	o := &Orchestrator{Enabled: true, Interval: defaultCycle}
	args := d.decode(b.Body, b.TypeRange, o, custom{"interval": d.interval(&o.Interval)}, nested{
		"sink": {label: "kind", words: sinkKinds, read: func(b *hcl.Block) { o.Sinks = append(o.Sinks, d.sink(b)) }},
	})
	args.names("clusters", o.Clusters, text.CheckSegment)
	args.names("stage_gates", o.StageGates, text.CheckName)
	return o
}

var sinkKinds = []string{SinkLog, SinkFile, SinkWebhook}

// sink decodes a receiver of events. Each kind has its own arguments.
func (d *decoder) sink(b *hcl.Block) EventSink {
	kind, def := b.Labels[0], b.LabelRanges[0]
	label := "Sink " + strconv.Quote(kind)
	switch kind {
	case SinkLog:
		d.decode(b.Body, def, &struct{}{}, nil, nil)
		d.claim("sink", "", kind, def, text.CheckVisible)
	case SinkFile:
		var s struct {
			Path string `hcl:"path,optional"`
		}
		args := d.decode(b.Body, def, &s, nil, nil)
		args.required(label, "path")
		args.ownPath("path", &s.Path, "the file of an event sink")
		if s.Path != "" {
			d.claim("sink", kind, s.Path, args.at("path"), text.CheckVisible)
		}
		return EventSink{Kind: kind, Path: s.Path}
	case SinkWebhook:
		var s struct {
			URL        string `hcl:"url,optional"`
			SecretFile string `hcl:"secret_file,optional"`
		}
		args := d.decode(b.Body, def, &s, custom{"secret": d.forbidden("secret_file")}, nil)
		args.required(label, "url")
		args.ownPath("secret_file", &s.SecretFile, "the secret file of a webhook")
		if args.ok("url") && args.valid("url", checkWebhook(s.URL)) {
			d.claimURL(s.URL, args.at("url"))
		}
		return EventSink{Kind: kind, URL: s.URL, SecretFile: s.SecretFile}
	default:
		d.errorf(def, "Unknown sink", "A sink can be %s, not %q.%s", list(sinkKinds, "or"), kind, didYouMean(kind, sinkKinds))
	}
	return EventSink{Kind: kind}
}

// claimURL checks that a URL, which may hold a secret, is used once.
func (d *decoder) claimURL(url string, rng hcl.Range) {
	key := "url\x00" + url
	if before, taken := d.names[key]; taken {
		d.errorf(rng, "Duplicate sink", "The URL is already at %s.", position(before))
		return
	}
	d.names[key] = rng
}

// ui decodes the listener that shows the fleet. An address that other hosts can reach
// needs TLS.
func (d *decoder) ui(b *hcl.Block) *UI {
	u, secured := &UI{}, false
	args := d.decode(b.Body, b.TypeRange, u, nil, nested{"tls": {once: true, read: func(b *hcl.Block) {
		secured = true
		args := d.decode(b.Body, b.TypeRange, &u.TLS, nil, nil)
		args.required("A tls block", "cert_file", "key_file")
		args.ownPath("cert_file", &u.TLS.CertFile, "the certificate of the ui listener")
		args.ownPath("key_file", &u.TLS.KeyFile, "the key of the ui listener")
		args.ownPath("client_ca_file", &u.TLS.ClientCAFile, "the authority of viewers' certificates")
	}}})
	args.required("A ui block", "address")
	if !args.ok("address") || !args.valid("address", checkListenAddr(u.Address)) {
		return u
	}
	if !secured && !OnLoopback(u.Address) {
		d.errorf(args.at("address"), "Missing block", "Other hosts can reach %s: the ui block needs tls { cert_file, key_file }.", u.Address)
	}
	return u
}

// OnLoopback reports whether only this host can reach a host:port.
func OnLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func (d *decoder) logStore(b *hcl.Block) *LogStore {
	l := &LogStore{}
	args := d.decode(b.Body, b.TypeRange, l, nil, nested{"s3": {once: true, read: func(b *hcl.Block) {
		l.S3 = &S3{}
		args := d.decode(b.Body, b.TypeRange, l.S3, nil, nil)
		args.notEmpty("endpoint", "region")
		args.valid("bucket", text.CheckSegment(l.S3.Bucket))
		args.ownPath("credentials_file", &l.S3.CredentialsFile, "the credentials file of the log store")
		args.required("An s3 block", "endpoint", "bucket")
	}}})
	args.ownPath("dir", &l.Dir, "the directory of the log store")
	switch {
	case l.S3 == nil:
		args.exactlyOne("A log_store block", "dir", "s3")
	case args.has("dir"):
		d.errorf(args.at("dir"), "Conflicting arguments", "A log_store block has dir and s3: only one of them is possible.")
	}
	return l
}

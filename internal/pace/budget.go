package pace

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/text"
)

// ErrBudget: the budget is invalid.
var ErrBudget = errors.New("not a budget")

// Budget is how many hosts of a cluster may be out of service at the same time,
// whatever the reason. A zero Amount limits nothing.
type Budget struct {
	MaxOut Amount            `json:"max_out,omitzero"`
	Roles  map[string]Amount `json:"roles,omitempty"` // of the members with a role
	// Zones is how many zones may have a host out that jorc took out; 0: any number.
	Zones  int       `json:"zones,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Check returns ErrBudget for a budget that limits nothing, or for a role without an
// amount.
func (b *Budget) Check() error {
	if b.MaxOut == (Amount{}) && len(b.Roles) == 0 && b.Zones == 0 {
		return fmt.Errorf("%w: it limits nothing: give a number or share of the cluster, of a role, or a number of zones", ErrBudget)
	}
	if b.Zones < 0 {
		return fmt.Errorf("%w: %d zones: give at least 1", ErrBudget, b.Zones)
	}
	for _, role := range slices.Sorted(maps.Keys(b.Roles)) {
		if role == "" || b.Roles[role] == (Amount{}) {
			return fmt.Errorf("%w: role %q has no amount", ErrBudget, role)
		}
	}
	return nil
}

// Equal reports whether both limit the same.
func (b *Budget) Equal(o *Budget) bool {
	if b == nil || o == nil {
		return b == o
	}
	x, y := *b, *o
	x.Since, x.By, x.Reason = y.Since, y.By, y.Reason
	return text.SameJSON(x, y)
}

// String is the budget in words: "10% of the hosts, 1 of role db, 1 zone".
func (b *Budget) String() string {
	var parts []string
	if b.MaxOut != (Amount{}) {
		parts = append(parts, b.MaxOut.String()+" of the hosts")
	}
	for _, role := range slices.Sorted(maps.Keys(b.Roles)) {
		parts = append(parts, fmt.Sprintf("%s of role %s", b.Roles[role], role))
	}
	switch b.Zones {
	case 0:
	case 1:
		parts = append(parts, "1 zone")
	default:
		parts = append(parts, fmt.Sprintf("%d zones", b.Zones))
	}
	return strings.Join(parts, ", ")
}

// Host is a member as the count of who is out sees it.
type Host struct {
	Node  string    `json:"node"`
	Zone  string    `json:"zone,omitempty"`
	Roles []string  `json:"roles"`
	Out   string    `json:"out"`            // why it is out of service; empty: it is in service
	For   string    `json:"for,omitempty"`  // the change that took it out, or is about to
	Since time.Time `json:"since,omitzero"` // of Out; zero: that is not known
	// Offered: For was only offered to it. It counts, and costs something as long as it has not accepted: what it was
	// offered may be void.
	Offered bool `json:"-"`
	// Failed: what For brought to it failed, or it is down or critical by itself. It counts, but
	// its zone does not.
	Failed bool `json:"failed,omitempty"`
	// GivenUp: an operator no longer counts it.
	GivenUp bool `json:"given_up,omitempty"`
	// Gone: it left the catalog a day ago or longer. Shares, those of a policy too, are not of it, and
	// it is not out of service.
	Gone bool `json:"gone,omitempty"`
	// Lone: with a budget no two hosts that have a word in common are taken out.
	Lone []string `json:"lone,omitempty"`
	// Holder: it holds the orchestrator's lock.
	Holder bool `json:"holder,omitempty"`
	// Down: it, or its agent, is down, and jorc did not take it out.
	Down bool `json:"down,omitempty"`

	// What changes see of the host. Up: the host and its agent are; DownSince is since when
	// they are not, zero: that is not known. Service is why it is out of service without a grant.
	Up        bool      `json:"-"`
	DownSince time.Time `json:"-"`
	Service   OutReason `json:"-"`
	// Hold, HoldFile and Drained say in words what an operator did with it, in the cluster, on the
	// host, or in Consul; empty: nothing.
	Hold     string `json:"-"`
	HoldFile string `json:"-"`
	Drained  string `json:"-"`
	// Parts are its parts of changes.
	Parts []Part `json:"-"`
}

// Held says what holds the host; empty: nothing does.
func (h *Host) Held() string {
	switch {
	case h.Hold != "":
		return "it is held: " + h.Hold
	case h.HoldFile != "":
		return "it cannot begin: " + h.HoldFile
	}
	return ""
}

// Words of Host.Lone.
const (
	ConsulServer = "Consul server"
	Candidate    = "candidate for orchestration"
)

// counts reports whether the host is out of service.
func (h *Host) counts() bool { return h.Out != "" && !h.GivenUp && !h.Gone }

// Account says who is out of service, and what the budget leaves. A nil Account has no
// limit.
type Account struct {
	budget  *Budget
	hosts   map[string]*Host
	members map[string]int // by role; of shares
	total   int
	limits  map[limitKey]int // how many may be out

	out   map[limitKey]int // how many are
	zones map[string]int   // hosts that jorc took out, by zone
	taken map[string]bool  // by Take
	kept  map[string]bool  // of taken, by keep
	over  bool             // see Over
}

// limitKey is what a limit is of: the cluster, a role, or the hosts of which one may be out.
type limitKey struct{ kind, name string }

// Kinds of limits.
const (
	OfCluster = "cluster"
	OfRole    = "role"
	OfZones   = "zones"
	OfLone    = "lone"
	// OfHolder is of the host that holds the orchestrator's lock: it gives the lock away
	// before it is taken out.
	OfHolder = "holder"
	OfLeases = "leases" // Name has the hosts
)

// NewAccount counts hosts. Without a budget everything is allowed.
func NewAccount(b *Budget, hosts []Host) *Account {
	a := &Account{
		budget: b, hosts: make(map[string]*Host, len(hosts)), members: map[string]int{},
		limits: map[limitKey]int{}, out: map[limitKey]int{}, zones: map[string]int{}, taken: map[string]bool{}, kept: map[string]bool{},
	}
	for i := range hosts {
		h := &hosts[i]
		a.hosts[h.Node] = h
		if h.Gone {
			continue
		}
		a.total++
		for _, role := range h.Roles {
			a.members[role]++
		}
	}
	if b != nil {
		if b.MaxOut != (Amount{}) {
			a.limits[limitKey{OfCluster, ""}] = b.MaxOut.Of(a.total)
		}
		for role, amount := range b.Roles {
			a.limits[limitKey{OfRole, role}] = amount.Of(a.members[role])
		}
	}
	for _, h := range a.hosts {
		if h.counts() {
			a.add(h)
		}
	}
	return a
}

// add counts a host as out.
func (a *Account) add(h *Host) {
	for key := range h.keys() {
		a.out[key]++
	}
	if h.For != "" && !h.Failed || a.taken[h.Node] {
		a.zones[h.Zone]++
	}
}

// keys are the limits that the host counts for.
func (h *Host) keys() iter.Seq[limitKey] {
	return func(yield func(limitKey) bool) {
		if !yield(limitKey{OfCluster, ""}) {
			return
		}
		for _, role := range h.Roles {
			if !yield(limitKey{OfRole, role}) {
				return
			}
		}
		for _, word := range h.Lone {
			if !yield(limitKey{OfLone, word}) {
				return
			}
		}
	}
}

// alone reports whether all other candidates for orchestration are down.
func (a *Account) alone(h *Host) bool {
	for _, o := range a.hosts {
		if o.Node != h.Node && !o.Down && !o.Gone && slices.Contains(o.Lone, Candidate) {
			return false
		}
	}
	return true
}

// Holder returns the member that holds the orchestrator's lock; alone: it is taken out as
// any other host, as no other candidate is up. Empty: none holds it.
func (a *Account) Holder() (node string, alone bool) {
	if a == nil {
		return "", false
	}
	for _, h := range a.hosts {
		if h.Holder {
			return h.Node, a.alone(h)
		}
	}
	return "", false
}

// limit returns how many hosts that key is of may be out; ok is false without a limit.
func (a *Account) limit(key limitKey) (n int, ok bool) {
	if key.kind == OfLone {
		return 1, true
	}
	if a.over {
		return 0, false
	}
	n, ok = a.limits[key]
	return n, ok
}

// Limit is why a host may not be taken out of service now.
type Limit struct {
	Kind    string `json:"kind"` // OfCluster, OfRole, OfZones, OfLone, OfHolder
	Name    string `json:"name,omitempty"`
	Allowed int    `json:"allowed"`
	Out     int    `json:"out"`
}

// String is the limit in words: "the budget: 3 of 3 hosts are out of service".
func (l Limit) String() string {
	switch l.Kind {
	case OfRole:
		return fmt.Sprintf("the budget: %d of %d hosts of role %q are out of service", l.Out, l.Allowed, l.Name)
	case OfZones:
		return fmt.Sprintf("the budget: hosts of %d of %d zones are out of service", l.Out, l.Allowed)
	case OfLone:
		return fmt.Sprintf("the budget: another %s is out of service, and one may be", l.Name)
	case OfLeases:
		return leasesText(l)
	case OfHolder:
		return "the budget: it holds the orchestrator's lock, so it goes last, and gives the lock away first"
	}
	return fmt.Sprintf("the budget: %d of %d hosts are out of service", l.Out, l.Allowed)
}

// Budget returns the budget; nil: none.
func (a *Account) Budget() *Budget {
	if a == nil {
		return nil
	}
	return a.budget
}

// Admit returns whether node may be taken out of service beside the hosts that are out, and the
// limit that forbids it otherwise. A host that is out already costs nothing; one that was only offered something is
// admitted where the limits leave a place for it beside the others. The host that
// holds the orchestrator's lock is admitted only while no other candidate is up.
func (a *Account) Admit(node string) (Limit, bool) {
	if a == nil || a.budget == nil {
		return Limit{}, true
	}
	h := a.hosts[node]
	if h == nil {
		h = &Host{Node: node}
	}
	holds := h.Holder && h.For == "" && (!a.taken[node] || a.kept[node])
	alone := holds && a.alone(h)
	if a.certain(node) {
		if holds && !alone {
			return Limit{Kind: OfHolder}, false
		}
		return Limit{}, true
	}
	own := 0 // of what counts as out
	if h.counts() {
		own = 1
	}
	for key := range h.keys() {
		if alone && key == (limitKey{OfLone, Candidate}) {
			continue // otherwise it would wait for a host that may never come back
		}
		if allowed, limited := a.limit(key); limited && a.out[key]-own >= allowed {
			return Limit{key.kind, key.name, allowed, a.out[key] - own}, false
		}
	}
	others := len(a.zones) - own // if no other host of its zone is out
	if z := a.budget.Zones; z > 0 && !a.over && a.zones[h.Zone] == own && others >= z {
		return Limit{OfZones, "", z, others}, false
	}
	if holds && !alone {
		return Limit{Kind: OfHolder}, false
	}
	return Limit{}, true
}

// Over returns the account as a change sees it that may take hosts out beyond the limits of the cluster,
// of roles and zones, see Exceptions. Never two Consul servers or candidates for orchestration. What it takes
// is taken from a, too.
func (a *Account) Over() *Account {
	if a == nil {
		return nil
	}
	b := *a
	b.over = true
	return &b
}

// IsOut reports whether node is out of service, or was taken out by Take.
func (a *Account) IsOut(node string) bool {
	if a == nil {
		return false
	}
	h := a.hosts[node]
	return a.taken[node] || h != nil && h.counts()
}

// certain reports whether node is out of service for certain, so that another change costs nothing there.
func (a *Account) certain(node string) bool {
	return a.IsOut(node) && (a.taken[node] || !a.hosts[node].Offered)
}

// Take counts node as out from now on.
func (a *Account) Take(node string) {
	if a == nil || a.IsOut(node) {
		return
	}
	h := a.hosts[node]
	if h == nil {
		h = &Host{Node: node}
	}
	a.taken[node] = true
	a.add(h)
}

// keep counts node as out, for a change that waits for its place: the host is still in service.
func (a *Account) keep(node string) {
	if !a.IsOut(node) {
		a.Take(node)
		a.kept[node] = true
	}
}

// Clone returns a copy that Take does not share.
func (a *Account) Clone() *Account {
	if a == nil {
		return nil
	}
	b := *a
	b.out, b.zones, b.taken, b.kept = maps.Clone(a.out), maps.Clone(a.zones), maps.Clone(a.taken), maps.Clone(a.kept)
	return &b
}

// Out returns the hosts that are out of service, the ones that an operator gave up on
// too, by name.
func (a *Account) Out() []Host {
	all := []Host{}
	for _, h := range a.hosts {
		if h.Out != "" && !h.Gone {
			all = append(all, *h)
		}
	}
	slices.SortFunc(all, func(x, y Host) int { return cmp.Compare(x.Node, y.Node) })
	return all
}

// mostNamed bounds how many hosts a text names.
const mostNamed = 5

// Explain is the limit in words, with the hosts that use it up, and the ways out where all of
// them failed.
func (a *Account) Explain(l Limit) string {
	if l.Kind == OfLeases {
		return l.String()
	}
	var names []string
	allFailed := true
	for _, h := range a.Out() {
		uses := h.counts() && (l.Kind != OfZones || a.zones[h.Zone] > 0) && (l.Kind != OfRole || slices.Contains(h.Roles, l.Name)) && (l.Kind != OfLone || slices.Contains(h.Lone, l.Name)) && l.Kind != OfHolder
		allFailed = allFailed && (!uses || h.Failed && !a.taken[h.Node])
		if uses {
			names = append(names, h.Node+" ("+h.Out+")")
		}
	}
	limit := l.String()
	if len(names) > 0 {
		limit += ": " + text.Few(", ", names, mostNamed)
	}
	if allFailed && len(names) > 0 && (l.Kind == OfCluster || l.Kind == OfRole) {
		limit += "; they failed: " + waysOut
	}
	return limit
}

// waysOut is what an operator can do about failed hosts that use the budget up.
const waysOut = "repair them, 'jorc update give-up HOST', 'jorc update rollback', or a larger budget ('jorc cluster budget set')"

// Failure is a limit of the budget that hosts use up which failed: jorc gives none of their places back.
type Failure struct {
	Limit
	Nodes []string  // by name
	Since time.Time // the last of them failed; zero: that is not known
	Cause string    // the hosts and why they are out, and the ways out
}

// Failures returns the limits of the cluster and of roles that failed hosts use up.
func (a *Account) Failures() (all []Failure) {
	for _, u := range a.Uses() {
		if f, is := a.failure(u.Limit); is {
			all = append(all, f)
		}
	}
	return all
}

// failure returns l as a Failure; is reports whether failed hosts use it up.
func (a *Account) failure(l Limit) (f Failure, is bool) {
	if l.Kind != OfCluster && l.Kind != OfRole || l.Out < l.Allowed {
		return f, false
	}
	f.Limit = l
	for _, h := range a.Out() {
		switch {
		case !h.counts() || l.Kind == OfRole && !slices.Contains(h.Roles, l.Name):
			continue
		case !h.Failed:
			return f, false
		case h.Since.After(f.Since):
			f.Since = h.Since
		}
		f.Nodes = append(f.Nodes, h.Node)
	}
	f.Cause = a.Explain(l)
	return f, len(f.Nodes) > 0
}

// Use is how far one limit of the budget is used.
type Use struct {
	Limit
	Amount string `json:"amount"` // as the budget has it
	Hosts  int    `json:"hosts"`  // that it is of
}

// Full reports whether nothing is left.
func (u Use) Full() bool { return u.Out >= u.Allowed }

// Uses returns the limits of the budget in order: the cluster, its roles, its zones.
func (a *Account) Uses() []Use {
	b := a.Budget()
	if b == nil {
		return nil
	}
	var all []Use
	of := func(key limitKey, amount Amount, hosts int) {
		all = append(all, Use{Limit{key.kind, key.name, a.limits[key], a.out[key]}, amount.String(), hosts})
	}
	if b.MaxOut != (Amount{}) {
		of(limitKey{OfCluster, ""}, b.MaxOut, a.total)
	}
	for _, role := range slices.Sorted(maps.Keys(b.Roles)) {
		of(limitKey{OfRole, role}, b.Roles[role], a.members[role])
	}
	if b.Zones > 0 {
		zones := map[string]bool{}
		for _, h := range a.hosts {
			zones[h.Zone] = true
		}
		all = append(all, Use{Limit{OfZones, "", b.Zones, len(a.zones)}, fmt.Sprint(b.Zones), len(zones)})
	}
	return all
}

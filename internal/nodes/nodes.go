// Package nodes keeps what the nodes of one cluster report: which version each
// runs and which state it is in, by category. The document at nodes/<node> is
// the truth. Index keys below running_version/ and status/ are a projection of
// the documents for foreign readers; jorc answers no question from them.
//
// Failures are this package's sentinels, or those of packages kv and consul,
// by errors.Is.
package nodes

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// Sentinels of this package.
var (
	// ErrProvisioned: a node that is provisioned stays so until it is decommissioned.
	ErrProvisioned = errors.New("provisioned already")
	// ErrAlive: what was asked for is for hosts that are gone.
	ErrAlive = errors.New("the host is alive")
	// ErrNoVersion: the version file does not exist or is empty.
	ErrNoVersion = errors.New("no version yet")
	// ErrVersionFile: the version file holds something else than a version.
	ErrVersionFile = errors.New("not a version file")
)

// Keys below the cluster's prefix.
const (
	keyDesired = cluster.KeyDesired
	keyNodes   = cluster.PrefixReports
	keyRunning = cluster.PrefixRunning
	keyStatus  = cluster.PrefixStatus
)

// format is the number of the node documents' format.
const format = 1

// Ledger is what the nodes of one cluster report. It is safe for concurrent use.
type Ledger struct {
	client  *consul.Client
	prefix  string // of all clusters
	cluster string
	store   *kv.Store
	desired kv.Doc[string]
	docs    kv.Tree[Document]
	now     func() time.Time
	// unprojected: the token may not write index keys.
	unprojected *atomic.Bool
}

// New returns the ledger of the cluster below prefix; both may be empty, the
// keys are then at the root. It does no I/O.
func New(client *consul.Client, prefix, cluster string) *Ledger {
	prefix = strings.Trim(prefix, "/")
	s := kv.New(client, strings.Trim(prefix+"/"+cluster, "/"))
	return &Ledger{
		client: client, prefix: prefix, cluster: cluster, store: s,
		desired:     kv.NewText(s, keyDesired),
		docs:        kv.NewTree[Document](s, keyNodes, format).Checked(maxReport, Document.Bounded),
		unprojected: &atomic.Bool{},
		now:         func() time.Time { return time.Now().UTC().Truncate(time.Second) },
	}
}

// In returns the same ledger in another store of the same cluster.
func (l *Ledger) In(s *kv.Store) *Ledger {
	other := *l
	other.store = s
	other.desired = kv.NewText(s, keyDesired)
	other.docs = kv.NewTree[Document](s, keyNodes, format).Checked(maxReport, Document.Bounded)
	return &other
}

// WatchReports calls changed when something below nodes/ may have changed, or why
// that is not known, until ctx ends; then it returns ctx's error. No document is
// sent for it.
func (l *Ledger) WatchReports(ctx context.Context, changed func(error)) error {
	names := func(ctx context.Context, q consul.Query) ([]string, consul.Meta, error) {
		return l.client.KVKeys(ctx, l.store.Path(strings.TrimSuffix(keyNodes, "/")), "/", q)
	}
	return consul.Watch(ctx, l.client, consul.Query{}, names, func(u consul.Update[[]string]) { changed(u.Err) })
}

// Documents returns the node documents by name, to list or watch. They are
// changed with Move only.
func (l *Ledger) Documents() kv.Tree[Document] { return l.docs }

func runningKey(version, node string) string { return keyRunning + version + "/" + node }

func statusKey(category, state, node string) string {
	return keyStatus + category + "/" + state + "/" + node
}

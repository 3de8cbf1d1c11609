// Package slots hands out permissions to be disruptive: a group of slots is a
// counting semaphore in Consul's KV with a queue, first come first served.
//
// A group is a document at slots/<group> (see Group), a key that is there while
// its queue is not empty, and one for each of the claims in it, which holds a Holding:
//
//	slots/<group>/queued             for who needs to know no more than that
//	slots/<group>/held/<node>/<id>   while the claim holds a slot
//	slots/<group>/wait/<node>/<id>   while it waits: what it watches to be granted one
//
// The document and the keys it is about change in one transaction, so handing
// a slot on is one write: it takes the holder out, puts the next in, deletes
// the latter's wait key and makes its held key. Only who watched that wait key
// wakes: the one that may go, and the one behind it in the queue.
//
// Patient claims make their wait key first, outside of the queue, and whoever
// takes somebody out of a queue that has become short takes them in, many at one
// time. They watch nothing but their own key: it is changed to call the one that
// has become the first of the queue. So only a few of a thousand who come at one
// moment change the document. Who empties the queue looks once more for those
// who came meanwhile and relied on it.
//
// Keys of claims that are tied to a session are locked by it, and Consul
// deletes them when it ends. That is how the dead are found: a claim of the
// document without its key is gone. The first of the queue watches the keys
// below held/, each other waiter watches that of the one in front, and whoever
// sees one vanish takes the dead out of the document. In the same way a slot is
// given back while somebody waits: its holder deletes the key, and the first of
// the queue takes out all who did so, and lets as many in. So a slot whose holder
// was killed is handed on as soon as Consul ends its session, which is one to
// two times the session's TTL after the holder's last renewal. When nobody
// waits, the dead stay in the document until somebody does.
//
// While claims are held and waited for nothing is written; renewals of
// sessions do not go through Raft. A document that was deleted or damaged is
// made again from the keys.
package slots

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jorc/jorc/internal/kv"
)

// Sentinels of this package; those of packages kv and consul pass through it.
// A claim that is lost is a kv.ErrLockLost.
var (
	// ErrTaken: another living process has a claim of that node and id.
	ErrTaken = errors.New("another process has this claim")
	// ErrName: the name of a group, node or id cannot be part of a key.
	ErrName = errors.New("not a name")
)

// Reserved is the name of a group that cannot be used: rollouts are paced by
// grants.
const Reserved = "rollout"

// Keep, as a limit, leaves the number of a group's slots as it is; a new group has one.
const Keep = -1

const format = 1 // of the document and of what claims' keys hold

// Options say how claims that are tied to a session live.
type Options struct {
	// TTL is how long Consul lets a process live that it hears nothing of: from
	// one to two times this. Default 15 s.
	TTL time.Duration
	// Linger is how long a session that served is kept for the next claim, so
	// that claims in a row do not write one each. Default 1 min; below zero not at all.
	Linger time.Duration
}

// Slots is the groups of one cluster. It is safe for concurrent use.
type Slots struct {
	store    *kv.Store
	sessions *pool
}

// New returns the groups below slots/ of the store. It does no I/O. Close must
// be called when they are not used any more.
func New(store *kv.Store, o Options) *Slots {
	if o.Linger == 0 {
		o.Linger = time.Minute
	}
	s := store.Consistent()
	return &Slots{store: s, sessions: &pool{store: s, ttl: o.TTL, linger: o.Linger, idle: map[*kv.Session]*time.Timer{}}}
}

// Close ends the sessions that no claim needs. It takes at most
// five seconds, also when ctx has ended.
func (s *Slots) Close(ctx context.Context) { s.sessions.close(ctx) }

// Holder is who asks for a slot and why.
type Holder struct {
	Node string
	// ID tells the claims of a node apart. A claim of the same node and id that
	// was made before, in a process that is gone, is taken up again when it is
	// durable, and replaced when not. Empty: one that nobody has.
	ID     string
	Reason string
	// Durable claims end by Release and Unlock only, whatever happens to the
	// process and the host. Others end with their process.
	Durable bool
	// Patient, of a durable claim whose limit is Keep: it leaves it to those in
	// the queue to let it in, in any order. That is far cheaper where hundreds come
	// at one moment. All claims of the group should be patient then: one that is
	// tied to a session, and dies as the last of the queue, has nobody behind it
	// who sees that, so that somebody has to look at the group, as Resize does.
	Patient bool
}

// name is how the holder is called in the group.
func (h *Holder) name() (string, error) {
	if h.ID == "" {
		h.ID = fmt.Sprintf("%08x", rand.Uint32())
	}
	return h.Node + "/" + h.ID, errors.Join(check("node", h.Node), check("id", h.ID))
}

// maxName is how long a part of a key may be, in bytes.
const maxName = 256

// check returns ErrName for what cannot be one segment of a key.
func check(what, name string) error {
	switch {
	case name == "", name == ".", name == "..", len(name) > maxName, strings.Contains(name, "/"),
		!utf8.ValidString(name), strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%s %q: %w", what, name, ErrName)
	}
	return nil
}

// group is one group's keys.
type group struct {
	store *kv.Store
	name  string
	doc   kv.Doc[Group]
	held  kv.Tree[Holding]
	wait  kv.Tree[Holding]
	// limit is that of a document which has to be made again; Keep: not known.
	limit int
}

// queued is the key that is there while the document's queue is not empty: who
// comes or goes does not read the names of all others to learn that.
func (g *group) queued() string { return g.doc.Key() + "/queued" }

// mark makes or deletes that key, together with the document.
func (g *group) mark(t *kv.Txn, now Group) {
	if len(now.Queue) > 0 {
		t.Set(g.queued(), nil)
		return
	}
	t.Delete(g.queued())
}

func (s *Slots) group(name string, limit int) (*group, error) {
	if err := check("slot group", name); err != nil {
		return nil, err
	}
	if name == Reserved {
		return nil, fmt.Errorf("slot group %q: %w: it is reserved, and 'jorc update show' shows rollouts", name, ErrName)
	}
	key := "slots/" + name
	return &group{
		store: s.store, name: name, limit: limit,
		doc:  kv.NewDoc[Group](s.store, key, format),
		held: kv.NewTree[Holding](s.store, key+"/held/", format),
		wait: kv.NewTree[Holding](s.store, key+"/wait/", format),
	}, nil
}

// wrap says which group err is about.
func (g *group) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("slot group %q: %w", g.name, err)
}

package nodes

import (
	"context"
	"slices"

	"github.com/jorc/jorc/internal/kv"
)

// Singleness says whether one version is the only one that runs.
type Singleness struct {
	Version string  `json:"version"`
	Single  bool    `json:"single"`
	Found   bool    `json:"found"`  // some host runs it
	Others  []Other `json:"others"` // versions that hosts run which are there
	Apart   []Apart `json:"apart"`  // hosts that run another one, but are not there
}

// Other is another version that runs.
type Other struct {
	Version  string   `json:"version"`
	Hosts    int      `json:"hosts"`
	Examples []string `json:"examples"` // the first of them
}

// Apart is a host that is not there any more, and what is known of it.
type Apart struct {
	Host    string `json:"host"`
	Version string `json:"version"`
	Life    Life   `json:"life"`
	Arrived string `json:"arrived"` // when it came to Version; as it was written
}

// examples is how many hosts of a version are named.
const examples = 3

// Single tells whether version is the only one that runs. Hosts that are dead,
// or not in Consul's catalog, keep no version alive: they are named apart. It
// takes two requests when no other version runs, and otherwise a few and one
// for each other version, and returns what Running returns.
func (l *Ledger) Single(ctx context.Context, version string) (Singleness, error) {
	s := Singleness{Version: version, Others: []Other{}, Apart: []Apart{}}
	if err := CheckVersion(version); err != nil {
		return s, err
	}
	running, err := l.Running(ctx)
	if err != nil {
		return s, err
	}
	at := map[string][]string{} // the hosts of other versions
	var hosts []string
	for _, v := range running {
		if v == version {
			s.Found = true
			continue
		}
		if at[v], err = l.leaves(ctx, keyRunning+v+"/"); err != nil {
			return s, err
		}
		hosts = append(hosts, at[v]...)
	}
	slices.Sort(hosts)
	lives, err := l.lives(ctx, slices.Compact(hosts))
	if err != nil {
		return s, err
	}
	s.judge(running, at, lives)
	return s, l.arrivals(ctx, s.Apart)
}

// judge tells apart who counts.
func (s *Singleness) judge(running []string, at map[string][]string, lives map[string]Life) {
	for _, v := range running {
		o := Other{Version: v, Examples: []string{}}
		for _, h := range at[v] {
			if lives[h].Apart() {
				s.Apart = append(s.Apart, Apart{Host: h, Version: v, Life: lives[h]})
				continue
			}
			o.Hosts++
			if o.Hosts <= examples {
				o.Examples = append(o.Examples, h)
			}
		}
		if o.Hosts > 0 {
			s.Others = append(s.Others, o)
		}
	}
	s.Single = s.Found && len(s.Others) == 0
}

// arrivals fills in when hosts came to their versions.
func (l *Ledger) arrivals(ctx context.Context, apart []Apart) error {
	keys := make([]string, len(apart))
	for i, a := range apart {
		keys[i] = runningKey(a.Version, a.Host)
	}
	results, err := l.read(ctx, keys)
	if err != nil {
		return err
	}
	for i, key := range keys {
		if e, err := kv.NewText(l.store, key).From(results[key]); err == nil {
			apart[i].Arrived = e.Value
		}
	}
	return nil
}

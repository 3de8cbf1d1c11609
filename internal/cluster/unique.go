package cluster

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Singleness says whether one version is the only one that runs.
type Uniqueness struct {
	Version  string         `json:"version"`
	Single   bool           `json:"single"`
	Found    bool           `json:"found"`  // some host runs it
	Others   []OtherVersion `json:"others"` // versions that hosts run which are there
	Detached []DetachedHost `json:"apart"`  // hosts that run another one, but are not there
}

// Other is another version that runs.
type OtherVersion struct {
	Version  string   `json:"version"`
	Hosts    int      `json:"hosts"`
	Examples []string `json:"examples"` // the first of them
}

// Apart is a host that is not there any more, and what is known of it.
type DetachedHost struct {
	Host    string   `json:"host"`
	Version string   `json:"version"`
	Life    Liveness `json:"life"`
	Arrived string   `json:"arrived"` // when it came to Version
}

// examples is how many hosts of a version are named.
const examples = 3

// Single tells whether version is the only one that runs. Hosts that are dead,
// or not in Consul's catalog, keep no version alive: they are named apart. It
// takes two requests when no other version runs, and otherwise a few, and
// returns what Running returns.
func (c *Cluster) UniqueVersion(ctx context.Context, version string) (Uniqueness, error) {
	s := Uniqueness{Version: version, Others: []OtherVersion{}, Detached: []DetachedHost{}}
	if err := CheckVersion(version); err != nil {
		return s, err
	}
	reports, err := c.readReports(ctx)
	if err != nil {
		return s, err
	}
	at := map[string][]string{} // the hosts of other versions
	var hosts []string
	for _, h := range slices.Sorted(maps.Keys(reports)) {
		switch v := reports[h].Version; v {
		case "":
		case version:
			s.Found = true
		default:
			at[v] = append(at[v], h)
			hosts = append(hosts, h)
		}
	}
	lives, err := c.conditions(ctx, hosts)
	if err != nil {
		return s, err
	}
	s.judge(slices.Sorted(maps.Keys(at)), at, lives)
	for i, a := range s.Detached {
		s.Detached[i].Arrived = reports[a.Host].Since.Format(time.RFC3339)
	}
	return s, nil
}

// judge tells apart who counts.
func (s *Uniqueness) judge(running []string, at map[string][]string, lives map[string]Condition) {
	for _, v := range running {
		o := OtherVersion{Version: v, Examples: []string{}}
		for _, h := range at[v] {
			if lives[h].Detached() {
				s.Detached = append(s.Detached, DetachedHost{Host: h, Version: v, Life: lives[h].Liveness})
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

package orchestrator

// Aggregate is what a view adds up to.
type Aggregate struct {
	Nodes    int            `json:"nodes"`
	Life     map[string]int `json:"life"` // up, suspect, down; none: without a host
	Agents   map[string]int `json:"agents"`
	Health   map[string]int `json:"health"`
	Versions map[string]int `json:"versions"`
	Roles    map[string]int `json:"roles"`
	Zones    map[string]int `json:"zones"`
	Trouble  int            `json:"trouble"` // nodes of which something could not be read
}

// None is the word under which an Aggregate counts what is missing.
const AggregateNone = "none"

// Aggregate counts the members of v. The maps are never nil.
func (v View) Aggregate() Aggregate {
	a := Aggregate{
		Nodes: len(v.Nodes), Life: map[string]int{}, Agents: map[string]int{}, Health: map[string]int{},
		Versions: map[string]int{}, Roles: map[string]int{}, Zones: map[string]int{},
	}
	for _, n := range v.Nodes {
		a.Life[orNone(string(n.Life))]++
		a.Agents[orNone(n.Agent)]++
		a.Health[orNone(n.Health)]++
		a.Versions[orNone(n.Version)]++
		a.Zones[orNone(n.Zone)]++
		for _, r := range n.Roles {
			a.Roles[r]++
		}
		if n.Trouble != "" {
			a.Trouble++
		}
	}
	return a
}

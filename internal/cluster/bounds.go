package cluster

import "fmt"

// Bounds of what one node says of itself. What is beyond them is not read, so
// that one node cannot fill the documents that all share.
const (
	mostBytes   = 256 << 10 // of one document
	mostRoles   = 64
	mostTargets = 512 // provided or required
	mostStates  = 64
	longestName = 256 // bytes
)

// bounded returns what of a record is beyond the bounds.
func (r Record) bounded() error {
	for _, list := range []struct {
		what  string
		names []string
		most  int
	}{{"roles", r.Roles, mostRoles}, {"provided services", r.Provides, mostTargets}, {"keeper", []string{r.Keeper}, 1}, {"zone", []string{r.Zone}, 1}} {
		if err := boundedNames(list.what, list.names, list.most); err != nil {
			return err
		}
	}
	targets := make([]string, 0, 2*len(r.Requires))
	for _, q := range r.Requires {
		targets = append(targets, q.Target, q.For)
	}
	return boundedNames("required services", targets, 2*mostTargets)
}

// MaxReport is how many bytes of a node's report are read.
const MaxReport = mostBytes

// Bounded returns what of a node's report is beyond the bounds.
func (d Report) Bounded() error {
	names := []string{d.Version, d.Previous}
	for category, s := range d.States {
		names = append(names, category, s.State, s.Version)
	}
	return boundedNames("states", names, 2+3*mostStates)
}

func boundedNames(what string, names []string, most int) error {
	if len(names) > most {
		return fmt.Errorf("it has %d %s, at most %d are read", len(names), what, most)
	}
	for _, name := range names {
		if len(name) > longestName {
			return fmt.Errorf("%s: a name of %d bytes, at most %d are read", what, len(name), longestName)
		}
	}
	return nil
}

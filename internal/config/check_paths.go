package config

import "path/filepath"

// checkPaths makes sure that every destination has one owner: one template,
// and never the static configuration.
func (d *decoder) checkPaths() {
	r := newResolver()
	ids := make([][]string, len(d.destinations))
	owner := map[string]place{}
	for i, dest := range d.destinations {
		ids[i] = r.identities(dest.value)
		for _, id := range ids[i] {
			if other, taken := owner[id]; taken {
				d.errorf(dest.rng, "Destination used twice", "%s writes %s, as %s at %s does%s.", dest.owner, dest.value, other.owner, position(other.rng), asWritten(other, dest))
				break
			}
		}
		for _, id := range ids[i] {
			if _, taken := owner[id]; !taken {
				owner[id] = dest
			}
		}
		if src := d.sources[dest.owner]; src != "" && sameFile(ids[i], r.identities(src)) {
			d.errorf(dest.rng, "Destination is the source", "%s would overwrite its own source.", dest.owner)
		}
	}
	for i, dest := range d.destinations {
		d.checkParents(dest, ids[i], owner)
	}
	d.checkStatic(r, ids)
}

// checkParents refuses a file where another template needs a directory.
func (d *decoder) checkParents(dest place, ids []string, owner map[string]place) {
	for _, id := range ids {
		for dir := filepath.Dir(id); dir != "/"; dir = filepath.Dir(dir) {
			if other, taken := owner[dir]; taken {
				d.errorf(dest.rng, "Destination below a file", "%s writes below %s, which is the file that %s at %s writes.", dest.owner, other.value, other.owner, position(other.rng))
				return
			}
		}
	}
}

func (d *decoder) checkStatic(r *resolver, ids [][]string) {
	if len(d.destinations) == 0 {
		return
	}
	budget := maxWalk
	for _, at := range d.staticPaths {
		s := newStaticPath(r, at, &budget)
		for i, dest := range d.destinations {
			for _, id := range ids[i] {
				if s.owns(id) {
					d.errorf(dest.rng, "Destination is a static path", "%s writes %s, which the static path %q at %s owns%s. Static and dynamic configuration never share a file.", dest.owner, dest.value, at.value, position(at.rng), behind(dest.value, at.value, id))
					break
				}
			}
		}
	}
}

// behind tells where a path leads when that is not what is written.
func behind(written, static, id string) string {
	if written == id || static == id {
		return ""
	}
	return " (it is " + id + ")"
}

// asWritten tells how the other template names the same file.
func asWritten(other, dest place) string {
	if other.value == dest.value {
		return ""
	}
	return " under the name " + other.value
}

func sameFile(a, b []string) bool {
	for _, x := range a {
		for _, y := range b {
			if x == y {
				return true
			}
		}
	}
	return false
}

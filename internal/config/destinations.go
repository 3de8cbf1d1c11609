package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/jorc/jorc/internal/durable"
)

// checkPaths checks that every destination has one owner: one template, and
// neither the static configuration nor jorc itself. A conflict of the paths as they
// are written is an error. A conflict by a symbolic link is a warning, because another
// user may make the link: only its template fails, at each attempt to write.
func (d *decoder) checkPaths(c *Config) {
	if len(d.destinations) == 0 {
		return
	}
	own := d.ownFiles(c)
	asWritten := d.owners(newResolver(true), own)
	for i := range d.destinations {
		dest := &d.destinations[i]
		ids := asWritten.resolver.identities(dest.value)
		for _, found := range asWritten.conflicts(dest, ids) {
			d.errorf(dest.rng, found.summary, "%s.%s", found.detail, found.rule)
		}
		asWritten.add(dest, ids)
	}
	for i := range d.destinations {
		dest := &d.destinations[i]
		if other := asWritten.above(asWritten.resolver.identities(dest.value)); other != nil {
			found := belowFile(dest, other)
			d.errorf(dest.rng, found.summary, "%s.", found.detail)
		}
	}
	if !d.failed() {
		c.Owners = d.followLinks(asWritten, own)
		c.Owners.resolver = nil
	}
}

// followLinks returns the owners of the files that destinations lead to, and warns
// about each destination that leads to another's.
func (d *decoder) followLinks(asWritten *Owners, own []place) *Owners {
	o := d.owners(newResolver(false), own)
	ids := make([][]string, len(d.destinations))
	linked := map[*place]bool{}
	for i := range d.destinations {
		dest := &d.destinations[i]
		ids[i] = o.resolver.identities(dest.value)
		if _, refused := o.resolver.resolve(dest.value); refused != nil {
			d.warnf(dest.rng, "Symbolic link", "%s fails, and its file stays as it is: %v.", dest.owner, refused)
		}
		if !slices.Equal(ids[i], asWritten.resolver.identities(dest.value)) {
			linked[dest] = true // added after all others: a link takes no file from its owner
			continue
		}
		d.own(o, dest, ids[i])
	}
	for i := range d.destinations {
		if dest := &d.destinations[i]; linked[dest] {
			d.own(o, dest, ids[i])
		}
	}
	if len(linked) == 0 {
		return o
	}
	for i := range d.destinations {
		dest := &d.destinations[i]
		other := o.above(ids[i])
		switch {
		case other == nil:
		case linked[dest]:
			d.refuse(dest, belowFile(dest, other))
			o.drop(dest)
		default:
			d.refuse(other, belowFile(dest, other))
			o.drop(other)
		}
	}
	return o
}

// own makes dest the owner of files, or refuses it.
func (d *decoder) own(o *Owners, dest *place, ids []string) {
	if found := o.conflicts(dest, ids); len(found) > 0 {
		d.refuse(dest, found[0])
		return
	}
	o.add(dest, ids)
}

// refuse warns about a destination that leads to what is another's.
func (d *decoder) refuse(dest *place, found conflict) {
	d.warnf(dest.rng, found.summary, "%s, through a symbolic link: it fails, and its file stays as it is; remove the link.", found.detail)
}

// Owners says which template or other part of a configuration writes which file.
type Owners struct {
	files    map[string]*place // path → the destination that is this file
	own      []ownFile
	static   []staticPath
	resolver *resolver // while the configuration is loaded
}

// ownFile is a file or directory that jorc itself uses.
type ownFile struct {
	place
	ids []string
}

// conflict is why a template must not write a file.
type conflict struct {
	summary, detail string
	rule            string // a sentence that explains it
}

// owners returns the owners of all but destinations.
func (d *decoder) owners(r *resolver, own []place) *Owners {
	o := &Owners{files: map[string]*place{}, resolver: r}
	for _, f := range own {
		o.own = append(o.own, ownFile{f, r.identities(f.value)})
	}
	budget := maxWalk
	for _, at := range d.staticPaths {
		o.static = append(o.static, newStaticPath(r, at, &budget))
	}
	return o
}

// Check returns why a template must not write path, which has no symbolic links: it
// belongs to another template, the static configuration or jorc itself.
func (o *Owners) Check(template, path string) error {
	if o == nil {
		return nil
	}
	dest := &place{value: path, owner: fmt.Sprintf("template %q", template)}
	if taken := o.files[path]; taken != nil && (taken.owner == dest.owner || taken.owner == backupOf(dest.owner)) {
		return nil
	}
	found := o.conflicts(dest, []string{path})
	if other := o.above([]string{path}); other != nil {
		found = append(found, belowFile(dest, other))
	}
	if len(found) > 0 {
		return fmt.Errorf("%s, through a symbolic link: remove the link", found[0].detail)
	}
	return nil
}

// add makes dest, which is these files, the owner of each file without an owner.
func (o *Owners) add(dest *place, ids []string) {
	for _, id := range ids {
		if o.files[id] == nil {
			o.files[id] = dest
		}
	}
}

// drop undoes add.
func (o *Owners) drop(dest *place) {
	maps.DeleteFunc(o.files, func(_ string, owner *place) bool { return owner == dest })
}

func (o *Owners) conflicts(dest *place, ids []string) (found []conflict) {
	for _, id := range ids {
		if other := o.files[id]; other != nil && other != dest {
			found = append(found, conflict{summary: "Destination used twice", detail: fmt.Sprintf(
				"%s writes %s, as %s at %s does%s", dest.owner, dest.value, other.owner, position(other.rng), alias(*other, *dest))})
			break
		}
	}
	for _, f := range o.own {
		switch {
		case !anyBelow(f.ids, ids):
		case f.owner == dest.owner:
			found = append(found, conflict{summary: "Destination is the source", detail: dest.owner + " would overwrite its own source"})
		case !strings.HasPrefix(f.owner, "template "): // a template may write the source of another
			found = append(found, conflict{summary: "Destination belongs to jorc", detail: fmt.Sprintf("%s would overwrite %s, %s", dest.owner, f.owner, f.value)})
		}
	}
	for _, s := range o.static {
		for _, id := range ids {
			if s.owns(id) {
				found = append(found, conflict{
					summary: "Destination is a static path",
					detail: fmt.Sprintf("%s writes %s, which the static path %q at %s owns%s",
						dest.owner, dest.value, s.at.value, position(s.at.rng), resolved(dest.value, s.at.value, id)),
					rule: " Static and dynamic configuration never share a file.",
				})
				break
			}
		}
	}
	return found
}

// above returns the destination that is a file where one of these paths needs a
// directory.
func (o *Owners) above(ids []string) *place {
	for _, id := range ids {
		for path, dir := id, filepath.Dir(id); dir != path; path, dir = dir, filepath.Dir(dir) {
			if other := o.files[dir]; other != nil {
				return other
			}
		}
	}
	return nil
}

func belowFile(dest, other *place) conflict {
	return conflict{summary: "Destination below a file", detail: fmt.Sprintf("%s writes below %s, which is the file that %s at %s writes", dest.owner, other.value, other.owner, position(other.rng))}
}

// alias is the name under which another template writes the same file.
func alias(other, dest place) string {
	if other.value == dest.value {
		return ""
	}
	return " under the name " + other.value
}

// ownFiles are the files that jorc itself uses: its configuration, its state, its
// credentials, and the sources of templates.
func (d *decoder) ownFiles(c *Config) []place {
	own := d.inputs
	for name := range d.files {
		own = append(own, place{value: name, owner: "a file of this configuration"})
	}
	for _, f := range []place{
		{value: c.StateDir, owner: "jorc's state directory"},
		{value: c.VersionFile, owner: "the version file"},
		{value: c.Consul.TokenFile, owner: "the file of Consul's token"},
		{value: c.Consul.AuthFile, owner: "the file of Consul's HTTP basic authentication"},
		{value: c.Consul.CAFile, owner: "Consul's CA file"},
		{value: c.Consul.ClientCert, owner: "the client certificate"},
		{value: c.Consul.ClientKey, owner: "the client certificate's key"},
		{value: c.Vault.TokenFile, owner: "the file of Vault's token"},
		{value: c.Vault.CAFile, owner: "Vault's CA file"},
	} {
		if f.value != "" {
			own = append(own, f)
		}
	}
	all := make([]place, 0, len(own))
	for _, f := range own {
		full, err := filepath.Abs(f.value)
		if err != nil {
			d.errorf(f.rng, "Invalid path", "%v.", err)
			continue
		}
		all = append(all, place{value: full, rng: f.rng, owner: f.owner})
	}
	return all
}

// anyBelow reports whether one of the paths is one of the files, or below it.
func anyBelow(files, paths []string) bool {
	for _, file := range files {
		for _, p := range paths {
			if _, ok := below(file, p); ok {
				return true
			}
		}
	}
	return false
}

// resolved names the file that a path with symlinks leads to.
func resolved(written, static, id string) string {
	if written == id || static == id {
		return ""
	}
	return " (it is " + id + ")"
}

// maxLinks limits the symlinks of one path; the kernel follows fewer.
const maxLinks = 64

// resolver resolves paths as the kernel does, and caches what it has read. It does
// not follow the links that jorc does not follow.
type resolver struct {
	asWritten bool            // links count only in a path with ".."
	links     map[string]link // by their paths, without symlinks before the last part
}

// link is where a path leads if it is a symlink.
type link struct {
	target  string             // empty: the path is not a symlink, or is not followed
	refused *durable.LinkError // why it is not followed
}

func newResolver(asWritten bool) *resolver {
	return &resolver{asWritten: asWritten, links: map[string]link{}}
}

// resolve returns an absolute path without symlinks and "..", and which link it does
// not follow. Parts that do not exist yet are taken as written, below their parents'
// targets. As written, a path with symlinks and ".." resolves to "".
func (r *resolver) resolve(path string) (string, *durable.LinkError) {
	done, rest := "/", strings.Split(path, "/")
	if r.asWritten && !slices.Contains(rest, "..") {
		return filepath.Clean(path), nil
	}
	followed := 0
	var refused *durable.LinkError
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = filepath.Dir(done) // done contains no symlink
			continue
		}
		next := filepath.Join(done, part)
		at := r.readlink(next)
		if refused == nil {
			refused = at.refused
		}
		if at.target == "" || followed == maxLinks {
			done = next
			continue
		}
		if r.asWritten {
			return "", nil
		}
		followed++
		if absolute(at.target) {
			done = "/"
		}
		rest = append(strings.Split(at.target, "/"), rest...)
	}
	return done, refused
}

func (r *resolver) readlink(path string) link {
	at, known := r.links[path]
	if !known {
		target, err := os.Readlink(path) // an error for a path that is not a symlink
		if err == nil {
			at = followed(path, target)
		}
		r.links[path] = at
	}
	return at
}

// followed returns the link at path unless jorc does not follow it.
func followed(path, target string) link {
	p, err := durable.Locate(path)
	if err == nil {
		_ = p.Dir.Close() // only its links count
	}
	refused := new(durable.LinkError)
	if errors.As(err, &refused) {
		return link{refused: refused}
	}
	return link{target: target}
}

// identities are the names under which a write to path may change a file: the
// file behind a symlink, and the symlink itself.
func (r *resolver) identities(path string) []string {
	cut := strings.LastIndexByte(path, '/')
	whole, _ := r.resolve(path)
	if r.asWritten {
		if whole == "" {
			return nil
		}
		return []string{whole}
	}
	dir, _ := r.resolve(path[:cut+1])
	link := filepath.Join(dir, path[cut+1:])
	if link == whole {
		return []string{whole}
	}
	return []string{whole, link}
}

// below returns the rest of path under dir: "" for dir itself.
func below(dir, path string) (string, bool) {
	if path == dir {
		return "", true
	}
	if dir != "/" {
		dir += "/"
	}
	return strings.CutPrefix(path, dir)
}

// maxWalk limits the directory entries that one Load reads in search of symlinks
// below static paths.
const maxWalk = 20000

// staticPath is one path that a workflow owns, prepared for comparison.
type staticPath struct {
	at    place
	exact []string // a path without wildcards: its identities
	base  string   // a pattern: its directory, resolved
	rest  string   // and the pattern below it
	alias aliases
}

// aliases are the symlinks below a pattern's base: their targets, without
// symlinks → their names relative to the base.
type aliases map[string][]string

// isGlob includes escaped characters, which need matching.
func isGlob(s string) bool { return strings.ContainsAny(s, `*?[{\`) }

// newStaticPath prepares a pattern that passed checkGlob. budget is the number of
// directory entries that it may still read.
func newStaticPath(r *resolver, at place, budget *int) staticPath {
	s := staticPath{at: at}
	if !isGlob(at.value) {
		s.exact = r.identities(strings.TrimRight(at.value, "/"))
		return s
	}
	base, rest := doublestar.SplitPattern(at.value)
	if rest = path.Clean(rest); strings.HasSuffix(at.value, "/") {
		rest += "/**"
	}
	s.base, _ = r.resolve(base)
	if s.rest = rest; r.asWritten {
		return s
	}
	depth := strings.Count(rest, "/") + 1
	if strings.Contains(rest, "**") {
		depth = -1
	}
	s.alias = findAliases(r, s.base, depth, budget)
	return s
}

// owns reports whether id, without symlinks, belongs to the static path. A path
// without wildcards owns everything below it too.
func (s staticPath) owns(id string) bool {
	if s.base == "" {
		return anyBelow(s.exact, []string{id})
	}
	if rel, ok := below(s.base, id); ok && doublestar.MatchUnvalidated(s.rest, rel) {
		return true
	}
	for dir, last := id, ""; len(s.alias) > 0 && dir != last; last, dir = dir, filepath.Dir(dir) {
		for _, name := range s.alias[dir] {
			rel, _ := below(dir, id)
			if doublestar.MatchUnvalidated(s.rest, path.Join(name, rel)) {
				return true
			}
		}
	}
	return false
}

// findAliases finds the symlinks below base, nearest first, also in the
// directories that they lead to. depth limits the search; negative: unlimited.
func findAliases(r *resolver, base string, depth int, budget *int) aliases {
	type dir struct {
		name, real string
		depth      int
	}
	found := aliases{}
	seen := map[string]bool{base: true}
	for queue := []dir{{real: base, depth: depth}}; len(queue) > 0 && *budget > 0; queue = queue[1:] {
		at := queue[0]
		for _, e := range entries(at.real, budget) {
			name, real := path.Join(at.name, e.Name()), filepath.Join(at.real, e.Name())
			isDir := e.IsDir()
			if e.Type()&os.ModeSymlink != 0 {
				if real, _ = r.resolve(real); r.readlink(filepath.Join(at.real, e.Name())).refused != nil {
					continue
				}
				found[real] = append(found[real], name)
				info, err := os.Stat(real)
				isDir = err == nil && info.IsDir()
			}
			if isDir && at.depth != 1 && !seen[real] {
				seen[real] = true
				queue = append(queue, dir{name: name, real: real, depth: at.depth - 1})
			}
		}
	}
	return found
}

// entries reads a directory within the budget. One that another user controls counts
// as empty: its links are not followed, and that user could exhaust the budget.
func entries(dir string, budget *int) []os.DirEntry {
	d, err := durable.OpenDir(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	if d.Foreign() {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	list, err := f.ReadDir(*budget)
	if err != nil && err != io.EOF {
		return nil
	}
	*budget -= len(list)
	return list
}

package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
)

// Ansible is a dynamic inventory of Ansible: the answer to --list.
type Ansible struct {
	groups map[string][]string
	vars   map[string]map[string]any // by host
}

// ForAnsible returns the inventory of members of the cluster called name. Hosts choose their own names, roles and
// params, so all of them may be hostile: names become valid and stay distinct, variables
// have a prefix, and Ansible does not evaluate their values as templates. Params that hold
// secrets are left out.
func ForAnsible(name string, p profile.Document, members []cluster.Member) Ansible {
	inv := Ansible{groups: map[string][]string{}, vars: map[string]map[string]any{}}
	for i := range members {
		m := &members[i]
		host := inventoryHost(m.Node)
		inv.vars[host] = hostVars(name, p, m)
		groups := []string{"cluster_" + inventoryName(name), "health_" + inventoryName(orNone(m.Health))}
		if m.Zone != "" {
			groups = append(groups, "zone_"+inventoryName(m.Zone))
		}
		for _, role := range m.Roles {
			groups = append(groups, "role_"+inventoryName(role))
		}
		for _, group := range groups {
			if !slices.Contains(inv.groups[group], host) {
				inv.groups[group] = append(inv.groups[group], host)
			}
		}
	}
	return inv
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// MarshalJSON returns the groups, and the variables of all hosts, so that Ansible need not
// ask for each.
func (inv Ansible) MarshalJSON() ([]byte, error) {
	all := map[string]any{"_meta": map[string]any{"hostvars": inv.vars}}
	for name, hosts := range inv.groups {
		all[name] = map[string]any{"hosts": hosts}
	}
	return json.Marshal(all)
}

// Host returns the variables of one host, by its name in the inventory or its node's:
// the answer to --host.
func (inv Ansible) Host(name string) (vars map[string]any, ok bool) {
	if vars, ok = inv.vars[name]; !ok {
		vars, ok = inv.vars[inventoryHost(name)]
	}
	return vars, ok
}

// Names that Ansible accepts for groups and variables, and those of hosts that mean
// nothing else in its patterns or on the command line of ssh.
var (
	inventoryWord = text.Pattern(`^[A-Za-z0-9_]+$`)
	hostWord      = text.Pattern(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	groupWord     = text.Pattern(`^(cluster|health|zone|role|host)_|^(all|ungrouped|localhost)$`)
	digestEnd     = text.Pattern(`_[0-9a-f]{8}$`)
)

// inventoryName returns name as part of the name of a group or variable. A name that has
// to be changed ends with a digest, and so does one that looks as if it did: two names
// never become one.
func inventoryName(name string) string {
	if inventoryWord().MatchString(name) && !digestEnd().MatchString(name) {
		return name
	}
	return asciiOnly(name, "") + "_" + digestOf(name)
}

// inventoryHost returns the name of a host. One that could be that of a group, or an
// address, or for which Ansible would connect to the controller, is changed.
func inventoryHost(node string) string {
	_, notAddress := netip.ParseAddr(node)
	if hostWord().MatchString(node) && !digestEnd().MatchString(node) && !groupWord().MatchString(node) && notAddress != nil {
		return node
	}
	return "host_" + asciiOnly(node, ".-") + "_" + digestOf(node)
}

// asciiOnly keeps ASCII letters, digits and the characters in also.
func asciiOnly(name, also string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (inventoryWord().MatchString(string(r)) || strings.ContainsRune(also, r)) {
			return r
		}
		return '_'
	}, name)
}

func digestOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:4])
}

// hostVars are the variables of a member. Only ansible_host has no prefix of jorc's own.
func hostVars(name string, p profile.Document, m *cluster.Member) map[string]any {
	vars := map[string]any{
		"jorc_cluster": unsafeValue(name), "jorc_node": unsafeValue(m.Node), "jorc_zone": unsafeValue(m.Zone), "jorc_roles": unsafeValue(m.Roles),
		"jorc_version": unsafeValue(m.Version), "jorc_health": orNone(m.Health), "jorc_agent": m.Agent, "jorc_datacenter": unsafeValue(m.Datacenter),
	}
	if addr, err := netip.ParseAddr(m.Address); err == nil && addr.Zone() == "" || hostWord().MatchString(m.Address) {
		vars["ansible_host"] = m.Address
	}
	for key, resolved := range p.Effective(m.Roles, m.Params) {
		if strings.HasPrefix(key, "cluster/") || isSecretParam(p, key) {
			continue // jorc's own settings, and secrets
		}
		var v any
		decoder := json.NewDecoder(strings.NewReader(string(resolved.Value.JSON())))
		decoder.UseNumber()
		if decoder.Decode(&v) != nil {
			continue // a Value is JSON
		}
		vars["jorc_param_"+inventoryName(key)] = unsafeValue(withoutSecrets(v))
	}
	return vars
}

// unsafeValue marks a value as one in which Ansible evaluates no templates.
func unsafeValue(v any) any {
	switch v.(type) {
	case nil, bool, json.Number:
		return v
	}
	return map[string]any{"__ansible_unsafe": v}
}

// isSecretParam reports whether a param holds a secret, by its name or because its schema
// says writeOnly.
func isSecretParam(p profile.Document, key string) bool {
	var schema struct {
		WriteOnly bool `json:"writeOnly"`
	}
	s, ok := p.Schemas[key]
	return text.IsSecretName(key) || ok && json.Unmarshal(s.JSON(), &schema) == nil && schema.WriteOnly
}

// withoutSecrets returns v without the fields that hold secrets, and without the ones that
// Ansible would take for its own marks.
func withoutSecrets(v any) any {
	switch v := v.(type) {
	case map[string]any:
		kept := make(map[string]any, len(v))
		for name, field := range v {
			if !text.IsSecretName(name) && !strings.HasPrefix(name, "__ansible") {
				kept[name] = withoutSecrets(field)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(v))
		for i, item := range v {
			kept[i] = withoutSecrets(item)
		}
		return kept
	}
	return v
}

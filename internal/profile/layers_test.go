package profile_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

func layered(t *testing.T) profile.Document {
	t.Helper()
	return doc(t, `{"format":1,"name":"prod",
		"params":{"cluster/profile":"prod","a":"cluster","b":"cluster","c":"cluster","o":{"x":1,"in":{"p":1,"q":1}},"n":1},
		"roles":{"db":{"b":"db","c":"db","o":{"y":2,"in":{"p":2}}},"web":{"c":"web","n":null},"idle":{}},
		"schemas":{"a":{"default":"schema"},"d":{"default":"schema"},"o":{"default":{"z":0}},"t":true,"nul":{"default":null}}}`)
}

func show(e profile.Effective) string {
	var lines []string
	for _, key := range e.Params().Keys() {
		var sources []string
		for _, s := range e[key].Sources {
			sources = append(sources, s.String())
		}
		lines = append(lines, key+"="+e[key].Value.String()+" "+strings.Join(sources, "+"))
	}
	return strings.Join(lines, "\n")
}

func TestEffective(t *testing.T) {
	t.Parallel()
	d := layered(t)
	before := encoded(t, d)
	member := params(t, `{"d":"member","o":{"in":{"q":3}}}`)
	for _, tt := range []struct {
		name  string
		roles []string
		own   profile.Params
		want  string
	}{
		{"no roles", nil, nil, `
a="cluster" cluster
b="cluster" cluster
c="cluster" cluster
cluster/profile="prod" cluster
d="schema" default
n=1 cluster
nul=null default
o={"in":{"p":1,"q":1},"x":1} cluster`},
		{"two roles", []string{"db", "web", "unknown"}, nil, `
a="cluster" cluster
b="db" role/db
c="web" role/web
cluster/profile="prod" cluster
d="schema" default
n=null role/web
nul=null default
o={"in":{"p":2},"y":2} role/db`},
		{"the other way round", []string{"web", "db"}, member, `
a="cluster" cluster
b="db" role/db
c="db" role/db
cluster/profile="prod" cluster
d="member" member
n=null role/web
nul=null default
o={"in":{"q":3}} member`},
	} {
		if got := show(d.Effective(tt.roles, tt.own)); got != strings.TrimSpace(tt.want) {
			t.Errorf("%s:\n%s\nwant%s", tt.name, got, tt.want)
		}
	}
	want := `o={"in":{"p":2,"q":3},"x":1,"y":2,"z":0} default+cluster+role/db+member`
	if got := show(d.Compose([]string{"db"}, member)); !strings.Contains(got, want) {
		t.Errorf("composed:\n%s\nwant %s", got, want)
	}
	if encoded(t, d) != before || member.Value().String() != `{"d":"member","o":{"in":{"q":3}}}` {
		t.Errorf("the layers changed: %s, %s", encoded(t, d), member.Value())
	}
}

func TestCompose(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ lower, upper, want, sources string }{
		{`{"a":1}`, `{"b":2}`, `{"a":1,"b":2}`, "cluster+member"},
		{`{"a":1}`, `{"a":2}`, `{"a":2}`, "member"},
		{`{"a":{"x":1}}`, `{"a":{"y":1}}`, `{"a":{"x":1,"y":1}}`, "cluster+member"},
		{`{"a":[1,2]}`, `{"a":[3]}`, `{"a":[3]}`, "member"},
		{`{"a":{"x":1}}`, `{"a":null}`, `{"a":null}`, "member"},
		{`{"a":1}`, `{"a":{"x":1}}`, `{"a":{"x":1}}`, "member"},
		{`[1]`, `{"x":1}`, `{"x":1}`, "member"},
		{`{"x":1}`, `null`, `null`, "member"},
		{`{"x":1}`, `{}`, `{"x":1}`, "cluster+member"},
	} {
		d := shared(t, `{"p":`+tt.lower+`}`)
		got := d.Compose(nil, params(t, `{"p":`+tt.upper+`}`))
		want := "p=" + tt.want + " " + tt.sources
		if !strings.HasSuffix(show(got), want) {
			t.Errorf("%s below %s: %s, want %s", tt.lower, tt.upper, show(got), want)
		}
	}
}

func TestEffectiveAsJSON(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(layered(t).Compose([]string{"db"}, nil)["o"])
	want := `{"value":{"in":{"p":2,"q":1},"x":1,"y":2,"z":0},"sources":["default","cluster","role/db"]}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

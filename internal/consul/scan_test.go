package consul

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hashicorp/consul/api"
)

// whole returns v as Consul sends it.
func whole(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// oddNames have characters that need escapes or look like JSON.
var oddNames = []string{"web", "", `a"b`, `back\slash`, `\"`, "two\nlines", "ü", "a{b", "]", "</script>", `C:\`, "\u2028"}

func checksNamed(names []string) (all api.HealthChecks, want []CheckIndex) {
	for i, name := range names {
		all = append(all, &api.HealthCheck{
			Node: "n-" + name, CheckID: name, ServiceName: name, Name: name, Output: name, Notes: `{"ModifyIndex": 7}`,
			ServiceTags: names, ModifyIndex: uint64(i), Definition: api.HealthCheckDefinition{Header: map[string][]string{"ModifyIndex": {name}}},
		})
		want = append(want, CheckIndex{Node: "n-" + name, CheckID: name, ServiceName: name, ModifyIndex: uint64(i)})
	}
	return all, want
}

func TestScanFindsChecks(t *testing.T) {
	t.Parallel()
	all, want := checksNamed(oddNames)
	s := scanner{text: whole(t, all)}
	got := checkIndexMembers.list(&s)
	if err := s.end(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("checks = %+v, %v\nwant %+v", got, err, want)
	}
}

func TestScanFindsServices(t *testing.T) {
	t.Parallel()
	node := api.CatalogNode{Node: &api.Node{Node: "n", Meta: map[string]string{"Services": "{"}}, Services: map[string]*api.AgentService{}}
	want := map[string]ServiceIndex{}
	for i, name := range oddNames {
		node.Services[name] = &api.AgentService{ID: name, Service: name, Tags: oddNames, ModifyIndex: uint64(i), Meta: map[string]string{"Service": "x"}}
		want[name] = ServiceIndex{Service: name, ModifyIndex: uint64(i)}
	}
	s := scanner{text: whole(t, node)}
	got := pickServices(&s)
	if err := s.end(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("services = %+v, %v\nwant %+v", got, err, want)
	}
}

// TestScanFindsTheInventory compares with encoding/json.
func TestScanFindsTheInventory(t *testing.T) {
	t.Parallel()
	var all []map[string]any
	for _, name := range oddNames {
		checks, _ := checksNamed([]string{name, "x"})
		all = append(all, map[string]any{
			"Node": name, "Address": name, "Datacenter": name, "Meta": map[string]string{name: name}, "TaggedAddresses": map[string]string{"Node": "x"},
			"Services": []*api.AgentService{{ID: name, Service: name, Meta: map[string]string{"Service": "x"}}, {Service: "y"}}, "Checks": checks,
		})
	}
	text := whole(t, append(all, map[string]any{"Node": "bare", "Meta": nil, "Services": nil, "Checks": nil}))
	var want []NodeInfo
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	s := scanner{text: text}
	if got := nodeMembers.list(&s); s.end() != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("inventory = %+v, %v\nwant %+v", got, s.end(), want)
	}
	for i := range text {
		s := scanner{text: text[:i]}
		if nodeMembers.list(&s); s.end() == nil {
			t.Errorf("no error for the first %d of %d bytes", i, len(text))
		}
	}
}

// TestScanFindsServiceHosts: services and their nodes, without those of peers.
func TestScanFindsServiceHosts(t *testing.T) {
	t.Parallel()
	type summary struct {
		Name, PeerName string
		Nodes          []string
		Tags           []string
	}
	all := []summary{{Name: "peered", PeerName: "other", Nodes: []string{"n1"}}}
	var want []ServiceHosts
	for _, name := range oddNames {
		all = append(all, summary{Name: name, Nodes: []string{name, "n1"}, Tags: []string{"Nodes"}})
		want = append(want, ServiceHosts{Service: name, Nodes: []string{name, "n1"}})
	}
	all, want = append(all, summary{Name: "bare"}), append(want, ServiceHosts{Service: "bare"})
	text := whole(t, all)
	s := scanner{text: text}
	if got := pickServiceHosts(&s); s.end() != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("services = %+v, %v\nwant %+v", got, s.end(), want)
	}
	for i := range text {
		s := scanner{text: text[:i]}
		if pickServiceHosts(&s); s.end() == nil {
			t.Errorf("no error for the first %d of %d bytes", i, len(text))
		}
	}
}

func TestScanOfNothing(t *testing.T) {
	t.Parallel()
	for text, known := range map[string]bool{"null": false, "null\n": false, `{"Node":null,"Services":null}`: true, `{"Node":{},"Services":{}}`: true} {
		s := scanner{text: []byte(text)}
		if got := pickServices(&s); s.end() != nil || (got != nil) != known || len(got) > 0 {
			t.Errorf("services of %s = %v, %v; want none, not nil: %t", text, got, s.end(), known)
		}
	}
	for _, text := range []string{"null", "[]", " [ ] "} {
		s := scanner{text: []byte(text)}
		if got := checkIndexMembers.list(&s); s.end() != nil || len(got) > 0 {
			t.Errorf("checks of %s = %v, %v; want none", text, got, s.end())
		}
	}
}

// TestScanOfCutText: text that ends early is an error, wherever it ends.
func TestScanOfCutText(t *testing.T) {
	t.Parallel()
	all, _ := checksNamed(oddNames[:4])
	text := whole(t, all)
	for i := range len(text) {
		s := scanner{text: text[:i]}
		checkIndexMembers.list(&s)
		if s.end() == nil {
			t.Errorf("no error for the first %d of %d bytes", i, len(text))
		}
	}
	for _, wrong := range []string{"{}", `"x"`, "[1]", `[{"Node":1}]`, `[{"ModifyIndex":"x"}]`, `[{"ModifyIndex":-1}]`, "[{}] x", `[{"x":}]`, `[{"x":,}]`, `[{x:1}]`, `[{"Node":"\x"}]`} {
		s := scanner{text: []byte(wrong)}
		checkIndexMembers.list(&s)
		if s.end() == nil {
			t.Errorf("no error for %s", wrong)
		}
	}
}

// FuzzScan compares with encoding/json. The scan of any text must end.
func FuzzScan(f *testing.F) {
	f.Add("web", `[{"Node":"n","x":[1,{"y":"\\"}],"ModifyIndex":12}]`)
	f.Add(`a"\`, `[{"Definition":{"a":{"b":[[]]}}},null]`)
	f.Fuzz(func(t *testing.T, name, text string) {
		s := scanner{text: []byte(text)}
		got := checkIndexMembers.list(&s)
		var want []CheckIndex
		if err := json.Unmarshal([]byte(text), &want); err == nil && s.end() == nil && utf8.ValidString(text) &&
			!strings.ContainsFunc(text, func(r rune) bool { return r == '\\' }) && len(got) != len(want) {
			t.Errorf("%d checks in %s; encoding/json finds %d", len(got), text, len(want))
		}
		pickServices(&scanner{text: []byte(text)})
		pickNodes(&scanner{text: []byte(text)})
		pickPairs(&scanner{text: []byte(text)})
		nodeMembers.list(&scanner{text: []byte(text)})
		pickServiceHosts(&scanner{text: []byte(text)})
		name = strings.ToValidUTF8(name, "")
		all, wanted := checksNamed([]string{name, "x" + name})
		s = scanner{text: whole(t, all)}
		if got := checkIndexMembers.list(&s); s.end() != nil || !reflect.DeepEqual(got, wanted) {
			t.Errorf("checks = %+v, %v; want %+v", got, s.end(), wanted)
		}
	})
}

// FuzzNested: the objects of a list are cut where encoding/json cuts them.
func FuzzNested(f *testing.F) {
	f.Add(`[{"a":"}]\\"},{"b":[[{}],"\""]} , {}]`)
	f.Add(`[{"a":"`)
	f.Add(`[1,null]`)
	f.Fuzz(func(t *testing.T, text string) {
		s := scanner{text: []byte(text)}
		var got []string
		s.array(func() { got = append(got, string(s.nested())) })
		var want []json.RawMessage
		if json.Unmarshal([]byte(text), &want) != nil || slices.ContainsFunc(want, func(v json.RawMessage) bool { return v[0] != '{' && v[0] != '[' }) {
			return
		}
		if err := s.end(); err != nil || len(got) != len(want) {
			t.Fatalf("%d values, %v, in %s; want %d", len(got), err, text, len(want))
		}
		for i := range want {
			if got[i] != string(want[i]) {
				t.Errorf("value %d of %s is %s, want %s", i, text, got[i], want[i])
			}
		}
	})
}

func pairsNamed(names []string) (pairs KVPairs) {
	for i, name := range names {
		n := uint64(i)
		pairs = append(pairs, &KVPair{
			Key: name, Value: []byte("\x00\xff" + name), Session: name, Namespace: name, Partition: name,
			CreateIndex: n, ModifyIndex: n + 1, LockIndex: n + 2, Flags: ^n,
		})
	}
	return append(pairs, &KVPair{Key: "no value"}, &KVPair{Key: "empty", Value: []byte{}})
}

func TestScanFindsPairs(t *testing.T) {
	t.Parallel()
	want := pairsNamed(oddNames)
	s := scanner{text: whole(t, want)}
	got := pickPairs(&s)
	if err := s.end(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("pairs = %v, %v; want %v", got, err, want)
	}
	for _, wrong := range []string{`[{"Value":"*"}]`, `[{"Value":1}]`, `[{"Flags":-1}]`, `[{"Key":null}`} {
		s := scanner{text: []byte(wrong)}
		pickPairs(&s)
		if s.end() == nil {
			t.Errorf("no error for %s", wrong)
		}
	}
}

func BenchmarkPickPairs(b *testing.B) {
	text := manyPairs(b)
	for b.Loop() {
		s := scanner{text: text}
		if list := pickPairs(&s); s.end() != nil || len(list) < 1000 {
			b.Fatal(s.end())
		}
	}
}

func BenchmarkDecodePairs(b *testing.B) {
	text := manyPairs(b)
	for b.Loop() {
		var list KVPairs
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(&list); err != nil {
			b.Fatal(err)
		}
	}
}

func manyPairs(b *testing.B) []byte {
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("bench/app-%05d", i)
	}
	text, err := json.Marshal(pairsNamed(names))
	if err != nil {
		b.Fatal(err)
	}
	return text
}

func manyChecks(b *testing.B) []byte {
	names := make([]string, 1000)
	for i := range names {
		names[i] = strings.Repeat("s", 3) + string(rune('a'+i%26))
	}
	all, _ := checksNamed(names)
	for _, c := range all {
		c.ServiceTags, c.Definition = []string{"bench"}, api.HealthCheckDefinition{}
	}
	return whole(b, all)
}

func BenchmarkPickChecks(b *testing.B) {
	text := manyChecks(b)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s := scanner{text: text}
		if list := checkIndexMembers.list(&s); s.end() != nil || len(list) != 1000 {
			b.Fatal(s.end())
		}
	}
}

func BenchmarkDecodeChecks(b *testing.B) {
	text := manyChecks(b)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var list []CheckIndex
		if err := json.Unmarshal(text, &list); err != nil {
			b.Fatal(err)
		}
	}
}

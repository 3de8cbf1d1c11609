package main

import (
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// kinds counts requests by what they ask for, with the names of nodes and the
// like folded; the zero value is ready.
type kinds struct {
	mu  sync.Mutex
	all map[string]kindTally
}

// kindTally is what was asked of one kind.
type kindTally struct{ Requests, Conflicts, Failures, Received int }

func (t kindTally) plus(o kindTally) kindTally {
	return kindTally{t.Requests + o.Requests, t.Conflicts + o.Conflicts, t.Failures + o.Failures, t.Received + o.Received}
}

var (
	nodeNames  = regexp.MustCompile(`node-\d{5}`)
	sessionIDs = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	numbers    = regexp.MustCompile(`[0-9a-f]{12,}|\b\d+\b`)
	// changing are the parameters of which only the name tells.
	changing   = regexp.MustCompile(`([?&](?:index|wait|cas|hash|token|flags))=[^& ]*`)
	operations = regexp.MustCompile(`"(Verb|Key)":"([^"]*)"`)
)

// kindOfRequest names what the beginning of a request asks for: method and path,
// and the operations of a transaction.
func kindOfRequest(p []byte) string {
	text := string(p)
	line, rest, _ := strings.Cut(text, "\r\n")
	line = strings.TrimSuffix(line, " HTTP/1.1")
	line = strings.NewReplacer("&stale=", "", "stale=&", "", "%2F", "/").Replace(changing.ReplaceAllString(line, "$1"))
	if strings.HasPrefix(line, "PUT /v1/txn") {
		line = "PUT /v1/txn " + strings.Join(operationsOf(rest), ", ")
	}
	return fold(line)
}

// operationsOf are the kinds of operations of a transaction, each once.
func operationsOf(body string) (all []string) {
	verb := ""
	for _, m := range operations.FindAllStringSubmatch(body, -1) {
		if m[1] == "Verb" {
			verb = m[2]
			continue
		}
		key := strings.TrimPrefix(fold(m[2]), path.Join(fleetPrefix, fleetCluster)+"/")
		for _, index := range []string{"running_version/", "status/", "view/", "events/"} {
			if strings.HasPrefix(key, index) {
				key = index
			}
		}
		all = append(all, verb+" "+key)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func fold(text string) string {
	text = sessionIDs.ReplaceAllString(nodeNames.ReplaceAllString(text, "NODE"), "ID")
	method, rest, _ := strings.Cut(text, "/v1/")
	if rest == "" {
		return numbers.ReplaceAllString(text, "N")
	}
	return method + "/v1/" + numbers.ReplaceAllString(rest, "N")
}

func (k *kinds) add(kind string, n kindTally) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = map[string]kindTally{}
	}
	k.all[kind] = k.all[kind].plus(n)
}

// take returns what was counted since it was last called.
func (k *kinds) take() map[string]kindTally {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.all
	k.all = nil
	return all
}

// printKinds lists requests by kind, the most frequent first, as figures per node.
func printKinds(w io.Writer, what string, size int, all map[string]kindTally) {
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if n := all[b].Requests - all[a].Requests; n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	fmt.Fprintf(w, "         %s, per node:\n         %9s %9s %9s %9s\n", what, "requests", "conflicts", "failures", "KB")
	n := float64(size)
	for _, name := range names {
		t := all[name]
		fmt.Fprintf(w, "         %9.2f %9.2f %9.2f %9.2f  %s\n", float64(t.Requests)/n, float64(t.Conflicts)/n, float64(t.Failures)/n, float64(t.Received)/n/1000, name)
	}
}

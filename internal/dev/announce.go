package dev

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// hint is a suggestion with commands to copy.
type hint struct {
	what     string
	commands []string
}

// rowFormat is the format of a name and its value.
const rowFormat = "  %-16s %s\n"

// fate is what becomes of the data.
func fate(kept bool) string {
	if kept {
		return "kept"
	}
	return "removed when it ends"
}

// Text returns the announcement for people; jorc is the command that runs the
// program.
func (p Places) Text(jorc string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "A Consul and a jorc agent (pid %d) of their own are running. Their data is in %s, %s.\n\n", p.PID, p.Dir, fate(p.Kept))
	row := func(name, value string) { fmt.Fprintf(&b, rowFormat, name, value) }
	row("Consul's page", p.UI())
	row("Consul's API", "http://"+p.HTTPAddr)
	row("Consul's DNS", p.DNSAddr)
	row("jorc's page", p.Status)
	rows := func(name string, values []string) {
		for _, v := range values {
			row(name, v)
			name = ""
		}
	}
	rows("configuration", p.Config)
	rows("rendered files", p.Files)
	for _, why := range p.NotReady {
		fmt.Fprintf(&b, "\nNot all is ready yet: %s\n", why)
	}
	b.WriteString("\nTry, in another terminal:\n")
	writeHints(&b, p.hints(jorc))
	return b.String()
}

// writeHints writes hints, and how everything ends.
func writeHints(b *strings.Builder, hints []hint) {
	for _, h := range hints {
		fmt.Fprintf(b, "\n  %s\n", h.what)
		for _, c := range h.commands {
			fmt.Fprintf(b, "    %s\n", c)
		}
	}
	b.WriteString("\nCtrl-C ends it all.\n")
}

func (p Places) hints(jorc string) []hint {
	if jorc != "jorc" {
		jorc = Quoted(jorc)
	}
	to := jorc + " --http-addr " + p.HTTPAddr
	list := []hint{{"what is registered", []string{to + " service list"}}}
	if len(p.Files) > 0 {
		list = append(list, hint{"the files, as they follow", []string{"watch -n 0.2 cat " + Quoted(p.Files...)}})
	}
	if len(p.Web) > 0 {
		worker, cache := Quoted(filepath.Join(p.Dir, "worker.down")), Quoted(filepath.Join(p.Dir, "cache.json"))
		list = append(list,
			hint{"let an instance of web fail its health check, and fix it", []string{"curl -s -X POST " + p.Web[0] + "/down", "curl -s -X POST " + p.Web[0] + "/up"}},
			hint{"let the script check of worker fail, and fix it", []string{"touch " + worker, "rm " + worker}},
			hint{"change a key that a file uses", []string{"curl -s -X PUT -d 'Good morning' http://" + p.HTTPAddr + "/v1/kv/greeting"}},
			hint{"register a service of your own, with a script check that jorc runs", []string{to + " --state-dir " + Quoted(p.StateDir) + " service register " + cache}},
			hint{"wait for services, then start what needs them", []string{to + " --dns-addr " + p.DNSAddr + " wait web=2 cache -- echo all are there"}},
		)
	}
	return append(list, hint{"let the agent read its configuration again", []string{fmt.Sprintf("kill -HUP %d", p.PID)}})
}

// Quoted returns words quoted for a shell.
func Quoted(words ...string) string {
	words = slices.Clone(words)
	for i, w := range words {
		if strings.ContainsFunc(w, func(r rune) bool { return !strings.ContainsRune(plain, r) }) {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// plain holds the characters without a special meaning in a shell.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@+%"

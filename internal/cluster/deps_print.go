package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Formats in which a Graph can be written.
const (
	DepsText    = "text"
	DepsDOT     = "dot"
	DepsMermaid = "mermaid"
	DepsSVG     = "svg"
)

// DepsFormats returns the formats that Write knows.
func DepsFormats() []string { return []string{DepsText, DepsDOT, DepsMermaid, DepsSVG} }

// Write returns the graph in a format, ErrInvalid for one that it does not know.
func (g Graph) Write(format string) (string, error) {
	switch format {
	case DepsText:
		return g.text(), nil
	case DepsDOT:
		return g.dot(), nil
	case DepsMermaid:
		return g.mermaid(), nil
	case DepsSVG:
		return g.svg(), nil
	}
	return "", fmt.Errorf("format %q: %w: %s are known", format, ErrInvalid, strings.Join(DepsFormats(), ", "))
}

// CycleText returns one cycle for people: a -[mysql]-> b -[web]-> a.
func (g Graph) CycleText(cycle []string) string {
	var b strings.Builder
	for i, node := range cycle {
		if i > 0 {
			fmt.Fprintf(&b, " -[%s]-> ", g.Via(cycle[i-1], node))
		}
		b.WriteString(node)
	}
	return b.String()
}

func (g Graph) text() string {
	var b strings.Builder
	for _, e := range g.Edges {
		by := strings.Join(g.Services[e.Service], ", ")
		if e.External {
			by = "not by a member"
		}
		fmt.Fprintf(&b, "%s requires %s (%s): provided by %s\n", e.Node, e.label(), e.For, by)
	}
	for _, c := range g.Cycles {
		fmt.Fprintf(&b, "cycle: %s\n", g.CycleText(c))
	}
	return b.String()
}

func (e Edge) label() string {
	if e.Count > 1 {
		return fmt.Sprintf("%s=%d", e.Service, e.Count)
	}
	return e.Service
}

// link is one arrow of a drawing: from a member to one of those that provide
// what it requires, or to a service from elsewhere.
type link struct {
	from, to, label string
	external, loose bool // loose: it blocks nobody
	cycle           bool
}

func (g Graph) links() []link {
	var all []link
	for _, e := range g.Edges {
		to := g.Services[e.Service]
		if e.External {
			to = []string{e.Service}
		}
		for _, p := range to {
			all = append(all, link{e.Node, p, e.label(), e.External, !e.blocks(), e.blocks() && g.onCycle(e.Node, p)})
		}
	}
	return all
}

func (g Graph) onCycle(from, to string) bool {
	return slices.ContainsFunc(g.Cycles, func(c []string) bool {
		for i := range len(c) - 1 {
			if c[i] == from && c[i+1] == to {
				return true
			}
		}
		return false
	})
}

func (g Graph) dot() string {
	var b strings.Builder
	b.WriteString("digraph requires {\n  rankdir=LR;\n  node [shape=box];\n")
	for _, n := range g.Nodes {
		fmt.Fprintf(&b, "  %s;\n", dotQuote("member "+n, n))
	}
	for _, s := range g.External() {
		fmt.Fprintf(&b, "  %s;\n", strings.Replace(dotQuote("service "+s, s), "]", ", shape=ellipse, style=dashed]", 1))
	}
	for _, l := range g.links() {
		style := ""
		switch {
		case l.cycle:
			style = ", color=red"
		case l.loose:
			style = ", style=dashed"
		}
		to := "member " + l.to
		if l.external {
			to = "service " + l.to
		}
		fmt.Fprintf(&b, "  %s -> %s [label=%s%s];\n", quoteDOT("member "+l.from), quoteDOT(to), quoteDOT(l.label), style)
	}
	b.WriteString("}\n")
	return b.String()
}

func dotQuote(id, label string) string {
	return fmt.Sprintf("%s [label=%s]", quoteDOT(id), quoteDOT(label))
}

// quoteDOT quotes as DOT does: only the quote itself, and backslashes, which
// would begin its escapes.
func quoteDOT(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ").Replace(s) + `"`
}

func (g Graph) mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	ids := map[string]string{}
	for i, n := range g.Nodes {
		ids["member "+n] = "m" + strconv.Itoa(i)
		fmt.Fprintf(&b, "  m%d[%s]\n", i, quoteMermaid(n))
	}
	for i, s := range g.External() {
		ids["service "+s] = "s" + strconv.Itoa(i)
		fmt.Fprintf(&b, "  s%d([%s])\n", i, quoteMermaid(s))
	}
	var red []string
	for i, l := range g.links() {
		arrow, to := "-->", ids["member "+l.to]
		if l.loose {
			arrow = "-.->"
		}
		if l.external {
			to = ids["service "+l.to]
		}
		if l.cycle {
			red = append(red, strconv.Itoa(i))
		}
		fmt.Fprintf(&b, "  %s %s|%s| %s\n", ids["member "+l.from], arrow, quoteMermaid(l.label), to)
	}
	if len(red) > 0 {
		fmt.Fprintf(&b, "  linkStyle %s stroke:red\n", strings.Join(red, ","))
	}
	return b.String()
}

func quoteMermaid(s string) string {
	return `"` + strings.NewReplacer(`"`, "#quot;", "#", "#35;", "\n", " ").Replace(s) + `"`
}

package inventory

import (
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/jorc/jorc/internal/cluster"
)

// Formats in which a Graph can be written.
const (
	Text    = "text"
	DOT     = "dot"
	Mermaid = "mermaid"
	SVG     = "svg"
)

// Formats returns the formats that Write knows.
func Formats() []string { return []string{Text, DOT, Mermaid, SVG} }

// Write returns the graph in a format, cluster.ErrInvalid for one that it does not know.
func (g Graph) Write(format string) (string, error) {
	switch format {
	case Text:
		return g.text(), nil
	case DOT:
		return g.dot(), nil
	case Mermaid:
		return g.mermaid(), nil
	case SVG:
		return g.SVG(nil), nil
	}
	return "", fmt.Errorf("format %q: %w: %s are known", format, cluster.ErrInvalid, strings.Join(Formats(), ", "))
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

// link is one arrow of a drawing: from a member to one of the ones that provide
// what it requires, or to a service from elsewhere.
type link struct {
	from, to, label string
	external, loose bool // loose: it blocks no member
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
		fmt.Fprintf(&b, "  %s;\n", strings.TrimSuffix(dotQuote("service "+s, s), "]")+", shape=ellipse, style=dashed]")
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

// quoteMermaid quotes for Mermaid, which looks for directives, Markdown and HTML in a
// quoted text, too.
func quoteMermaid(s string) string {
	return `"` + strings.NewReplacer(`"`, "#quot;", "#", "#35;", "%", "#37;", "<", "#lt;", ">", "#gt;", "`", "#96;", "\n", " ", "\r", " ").Replace(s) + `"`
}

// Measures of the drawing, in pixels.
const (
	svgColumn = 220
	svgRow    = 60
	svgWidth  = 150
	svgHeight = 32
	svgMargin = 20
)

// box is one member or outside service of the drawing.
type box struct {
	label          string
	x, y           int
	external, loop bool
}

// SVG draws the graph without a library and without scripts: members in columns, each
// behind the ones that it requires. href returns the address that the box of a host or
// of a service leads to (kind is "host" or "service"); nil: boxes lead nowhere.
func (g Graph) SVG(href func(kind, name string) string) string {
	boxes, order := g.layout()
	width, height := 0, 0
	for _, b := range boxes {
		width, height = max(width, b.x+svgWidth+svgMargin), max(height, b.y+svgHeight+svgMargin)
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		width, height, width, height)
	out.WriteString(`<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>` + "\n")
	for _, l := range g.links() {
		to := "member " + l.to
		if l.external {
			to = "service " + l.to
		}
		out.WriteString(arrow(l, boxes["member "+l.from], boxes[to]))
	}
	for _, key := range order {
		box := boxes[key]
		if href == nil {
			out.WriteString(box.svg())
			continue
		}
		kind := "host"
		if box.external {
			kind = "service"
		}
		fmt.Fprintf(&out, `<a href="%s">%s</a>`+"\n", quoteXML(href(kind, box.label)), strings.TrimSuffix(box.svg(), "\n"))
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// quoteXML quotes for XML, in which control characters cannot stand.
func quoteXML(s string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s))
}

// layout places the boxes: a column for each length of the way to what
// requires nothing, counted as far as there is no circle.
func (g Graph) layout() (boxes map[string]box, order []string) {
	to := map[string][]string{}
	for _, l := range g.links() {
		target := "member " + l.to
		if l.external {
			target = "service " + l.to
		}
		to["member "+l.from] = append(to["member "+l.from], target)
	}
	for _, n := range g.Nodes {
		order = append(order, "member "+n)
	}
	for _, s := range g.External() {
		order = append(order, "service "+s)
	}
	level := map[string]int{}
	for range order { // each round settles at least one level
		moved := false
		for _, from := range order {
			for _, target := range to[from] {
				if want := level[target] + 1; level[from] < want && want < len(order) && target != from && !slices.Contains(to[target], from) {
					level[from], moved = want, true
				}
			}
		}
		if !moved {
			break
		}
	}
	boxes, rows := map[string]box{}, map[int]int{}
	used := map[int]bool{}
	for _, l := range level {
		used[l] = true
	}
	used[0] = true
	column := func(l int) (n int) {
		for other := range used {
			if other < l {
				n++
			}
		}
		return n
	}
	for _, key := range order {
		kind, name, _ := strings.Cut(key, " ")
		l := level[key]
		boxes[key] = box{
			label: name, x: svgMargin + column(l)*svgColumn, y: svgMargin + rows[l]*svgRow,
			external: kind == "service", loop: kind == "member" && g.InCycle(name),
		}
		rows[l]++
	}
	return boxes, order
}

func (b box) svg() string {
	stroke, dash, round := "black", "", 3
	if b.loop {
		stroke = "red"
	}
	if b.external {
		dash, round = ` stroke-dasharray="4 3"`, svgHeight/2
	}
	label := []rune(b.label)
	if len(label) > 22 {
		label = append(label[:21], '…')
	}
	return fmt.Sprintf(`<g><title>%s</title><rect x="%d" y="%d" width="%d" height="%d" rx="%d" fill="white" stroke="%s"%s/>`+
		`<text x="%d" y="%d" text-anchor="middle">%s</text></g>`+"\n",
		quoteXML(b.label), b.x, b.y, svgWidth, svgHeight, round, stroke, dash,
		b.x+svgWidth/2, b.y+svgHeight/2+4, quoteXML(string(label)))
}

func arrow(l link, from, to box) string {
	stroke, dash := "gray", ""
	if l.cycle {
		stroke = "red"
	}
	if l.loose {
		dash = ` stroke-dasharray="4 3"`
	}
	x1, y1, x2, y2 := from.x, from.y+svgHeight/2, to.x+svgWidth, to.y+svgHeight/2
	bend := svgColumn / 4
	if to.x >= from.x { // the same column, or backwards: around the right side
		x1, x2 = from.x+svgWidth, to.x+svgWidth
		bend = -svgColumn / 4
	}
	if from == to {
		y1, y2 = y1-6, y2+6
	}
	return fmt.Sprintf(`<path d="M%d %dC%d %d %d %d %d %d" fill="none" stroke="%s"%s marker-end="url(#arrow)"/>`+
		`<text x="%d" y="%d" text-anchor="middle" font-size="10" fill="%s">%s</text>`+"\n",
		x1, y1, x1-bend, y1, x2+bend, y2, x2, y2, stroke, dash, (x1+x2)/2, (y1+y2)/2-4, stroke, quoteXML(l.label))
}

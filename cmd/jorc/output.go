package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	tabletext "github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/text"
)

// Formats of -o.
const (
	formatTable = "table" // for people
	formatJSON  = "json"  // stable, snake_case, indented
	formatPlain = "plain" // one row per line, cells separated by tabs, no header
)

// listing is an answer with rows.
type listing struct {
	columns []string
	rows    [][]string
	states  []string // columns whose words are coloured: passing, warning, critical, …
}

// listingOf is a listing with a row for each of all. Columns are separated by
// commas; a * marks those whose words are coloured.
func listingOf[T any](columns string, all []T, row func(T) []string) listing {
	var l listing
	for column := range strings.SplitSeq(columns, ",") {
		name, isState := strings.CutSuffix(column, "*")
		l.columns = append(l.columns, name)
		if isState {
			l.states = append(l.states, name)
		}
	}
	for _, v := range all {
		l.rows = append(l.rows, row(v))
	}
	return l
}

// rowsOf is a listing of rows.
func rowsOf(columns string, rows ...[]string) listing {
	return listingOf(columns, rows, func(row []string) []string { return row })
}

// format is the output format asked for; table by default. A wrong one never
// comes here, see checked.
func (e *environment) format(c *cli.Context) string {
	if value, given := e.value(c, "output"); given {
		return value
	}
	return formatTable
}

// checked is an action for a command line with the right number of arguments and
// an output format that exists.
func (e *environment) checked(argsUsage string, action cli.ActionFunc) cli.ActionFunc {
	n := arityOf(argsUsage)
	return func(c *cli.Context) error {
		if err := n.check(c); err != nil {
			return err
		}
		if err := oneOf(c, "output", e.format(c), formatTable, formatJSON, formatPlain); err != nil {
			return err
		}
		return action(c)
	}
}

// print writes an answer to stdout: l as a table or as plain lines, or v as
// JSON. The fields of v are tagged in snake_case and are a promise to scripts;
// a list is a non-nil slice, so that an empty one is [].
func (e *environment) print(c *cli.Context, l listing, v any) error {
	switch e.format(c) {
	case formatJSON:
		return e.writeJSON(c.App.Writer, v)
	case formatPlain:
		return l.writePlain(c.App.Writer)
	default:
		return l.writeTable(c.App.Writer, e.colour(c.App.Writer))
	}
}

// printLines is print for an answer that is one or more lines for scripts: plain
// unless -o asks for something else.
func (e *environment) printLines(c *cli.Context, l listing, v any) error {
	if _, given := e.value(c, "output"); !given {
		return l.writePlain(c.App.Writer)
	}
	return e.print(c, l, v)
}

// lines prints an answer of one word per line.
func (e *environment) lines(c *cli.Context, column string, words []string, v any) error {
	return e.printLines(c, listingOf(column, words, func(w string) []string { return []string{w} }), v)
}

// printProblems is print for commands that list what is wrong: no output means
// that nothing is.
func (e *environment) printProblems(c *cli.Context, l listing, v any) error {
	if len(l.rows) == 0 && e.format(c) != formatJSON {
		return nil
	}
	return e.print(c, l, v)
}

// when is a time in a listing; empty when it is not known.
func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// after is text behind a mark, or nothing.
func after(mark, text string) string {
	if text == "" {
		return ""
	}
	return mark + text
}

// note writes a line beside the answer to stderr.
func note(c *cli.Context, format string, args ...any) {
	fmt.Fprintf(c.App.ErrWriter, "jorc: "+format+"\n", args...)
}

// writeJSON writes an answer of jorc's own. Each object at its top, alone or in a
// list, has the cluster that answered as a field, if one was asked.
func (e *environment) writeJSON(w io.Writer, v any) error {
	if e.answers != "" {
		var err error
		if v, err = withCluster(v, e.answers); err != nil {
			return err
		}
	}
	return writeJSON(w, v)
}

// withCluster returns v with the field "cluster" as the first of each struct that
// does not have it. Other values stay as they are: maps and texts may be data of users.
func withCluster(v any, name string) (any, error) {
	value := reflect.Indirect(reflect.ValueOf(v))
	switch {
	case !value.IsValid():
		return v, nil
	case value.Kind() == reflect.Slice && elementIsStruct(value.Type().Elem()):
		all := make([]any, value.Len())
		for i := range all {
			var err error
			if all[i], err = withCluster(value.Index(i).Interface(), name); err != nil {
				return nil, err
			}
		}
		return all, nil
	case value.Kind() != reflect.Struct && value.Type() != reflect.TypeFor[map[string]string]():
		return v, nil
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	text := bytes.TrimSpace(b.Bytes())
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil || fields["cluster"] != nil {
		return v, nil // not an object, or it names its cluster
	}
	first, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	first = append([]byte(`{"cluster":`), first...)
	if len(fields) > 0 {
		first = append(first, ',')
	}
	return json.RawMessage(append(first, text[1:]...)), nil
}

func elementIsStruct(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

func (l listing) writePlain(w io.Writer) error {
	var b strings.Builder
	for _, row := range l.rows {
		for i, cell := range row {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(printable(cell))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(underlying(w), b.String())
	return err
}

func (l listing) writeTable(w io.Writer, colour bool) error {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = tabletext.FormatUpper
	t.SetStyle(style)
	t.AppendHeader(l.row(l.columns, false))
	for _, row := range l.rows {
		t.AppendRow(l.row(row, colour))
	}
	var b strings.Builder
	for line := range strings.Lines(t.Render() + "\n") {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	_, err := io.WriteString(underlying(w), b.String())
	return err
}

func (l listing) row(cells []string, colour bool) table.Row {
	row := make(table.Row, len(cells))
	for i, cell := range cells {
		cell = printable(cell)
		if colour && i < len(l.columns) && slices.Contains(l.states, l.columns[i]) {
			cell = painted(cell)
		}
		row[i] = cell
	}
	return row
}

// painted colours a word that is a state.
func painted(state string) string {
	codes := map[string]string{
		"passing": "32", "success": "32", "ok": "32", "up": "32",
		"warning": "33", "pending": "33", "running": "33", "maintenance": "33",
		"critical": "31", "failed": "31", "down": "31",
		"OK": "32", "WARN": "33", "FAIL": "31",
	}
	if code, ok := codes[state]; ok {
		return "\x1b[" + code + "m" + state + "\x1b[0m"
	}
	return state
}

// printable escapes what would break a line or steer a terminal.
func printable(s string) string { return text.Printable(s) }

// colour reports whether w may be coloured: a terminal, and not forbidden.
func (e *environment) colour(w io.Writer) bool {
	return e.getenv("NO_COLOR") == "" && e.getenv("TERM") != "dumb" && isTerminal(w)
}

type count struct {
	n    int
	noun string
}

// counted formats "1 service, 2 templates"; zero counts are left out.
func counted(counts ...count) string {
	var parts []string
	for _, c := range counts {
		switch {
		case c.n == 1:
			parts = append(parts, "1 "+c.noun)
		case c.n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", c.n, c.noun))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// joinOr formats "a, b or c".
func joinOr(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v2"
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

// format is the output format asked for; table by default.
func (e *environment) format(c *cli.Context) (string, error) {
	value, given := e.value(c, "output")
	if !given {
		return formatTable, nil
	}
	return value, oneOf(c, "output", value, formatTable, formatJSON, formatPlain)
}

// print writes an answer to stdout: l as a table or as plain lines, or v as
// JSON. The fields of v are tagged in snake_case and are a promise to scripts;
// a list is a non-nil slice, so that an empty one is [].
func (e *environment) print(c *cli.Context, l listing, v any) error {
	format, err := e.format(c)
	if err != nil {
		return err
	}
	switch format {
	case formatJSON:
		return e.writeJSON(c.App.Writer, v)
	case formatPlain:
		return l.writePlain(c.App.Writer)
	default:
		return l.writeTable(c.App.Writer, e.colour(c.App.Writer))
	}
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
		return v, nil // not an object, or it says so
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
	style.Format.Header = text.FormatUpper
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
func printable(s string) string {
	if !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unprintable(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// colour reports whether w may be coloured: a terminal, and not forbidden.
func (e *environment) colour(w io.Writer) bool {
	return e.getenv("NO_COLOR") == "" && e.getenv("TERM") != "dumb" && isTerminal(w)
}

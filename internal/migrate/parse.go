package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl"
	"github.com/hashicorp/hcl/hcl/ast"
	"github.com/hashicorp/hcl/hcl/parser"
	hclstrconv "github.com/hashicorp/hcl/hcl/strconv"
	"github.com/hashicorp/hcl/hcl/token"
)

// node is one key of a file with its value. Names are in lower case, because
// consul-template ignores the case.
type node struct {
	name    string
	at      Position
	comment []string // the lines above it, without comment signs
	value   any      // string, int64, float64, bool, []any or block
}

// block is the value of a node that has keys of its own.
type block []node

// maxDepth limits the brackets within brackets: the parser is recursive.
const maxDepth = 1000

// parseFile parses one file of HCL 1 or JSON.
func parseFile(name string, src []byte) ([]node, error) {
	if depth(src) > maxDepth {
		return nil, fmt.Errorf("%w: %s: nested too deep", ErrInput, name)
	}
	file, err := hcl.ParseBytes(src)
	var at *parser.PosError
	if errors.As(err, &at) {
		return nil, fmt.Errorf("%w: %s:%d: %w", ErrInput, name, at.Pos.Line, at.Err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, name, err)
	}
	list, ok := file.Node.(*ast.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%w: %s: it contains no settings", ErrInput, name)
	}
	r := &reader{file: name, keys: jsonKeys(src), lines: map[*ast.ObjectKey]int{}}
	nodes, err := r.nodes(list)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	return nodes, nil
}

func depth(src []byte) int {
	now, most := 0, 0
	for _, b := range src {
		switch b {
		case '{', '[':
			now++
			most = max(most, now)
		case '}', ']':
			now = max(0, now-1)
		}
	}
	return most
}

// reader turns the syntax tree of one file into nodes. The tree of JSON has no
// positions: its keys get those of the keys in the file, in the same order.
type reader struct {
	file  string
	keys  []jsonKey // that were not met yet
	lines map[*ast.ObjectKey]int
}

// jsonKey is the line of a key.
type jsonKey struct {
	quoted string
	line   int
}

// jsonKeys finds the keys of a JSON file: strings before a colon.
func jsonKeys(src []byte) []jsonKey {
	var all []jsonKey
	line := 1
	for i := 0; i < len(src); i++ {
		switch src[i] {
		case '\n':
			line++
		case '"':
			end := i + 1
			for end < len(src) && src[end] != '"' && src[end] != '\n' {
				if src[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(src) || src[end] != '"' {
				continue
			}
			if rest := bytes.TrimLeft(src[end+1:], " \t\r\n"); len(rest) > 0 && rest[0] == ':' {
				all = append(all, jsonKey{string(src[i : end+1]), line})
			}
			i = end
		}
	}
	return all
}

// line returns the line of a key.
func (r *reader) line(k *ast.ObjectKey) int {
	if !k.Token.JSON {
		return k.Token.Pos.Line
	}
	if line, met := r.lines[k]; met {
		return line
	}
	line := 1
	for i, key := range r.keys {
		if key.quoted == k.Token.Text {
			line, r.keys = key.line, r.keys[i+1:]
			break
		}
	}
	r.lines[k] = line
	return line
}

func (r *reader) nodes(list *ast.ObjectList) (block, error) {
	var all block
	for _, item := range list.Items {
		found, err := r.item(item.Keys, item)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// item returns the nodes of an item. Keys after the first one are blocks within
// it, and a list of blocks is the block repeated, as in consul-template.
func (r *reader) item(keys []*ast.ObjectKey, item *ast.ObjectItem) ([]node, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: a block without a name", r.file)
	}
	line := r.line(keys[0])
	name, err := key(keys[0])
	if err != nil {
		return nil, fmt.Errorf("%s:%d: %w", r.file, line, err)
	}
	n := node{name: name, at: Position{File: r.file, Line: line}, comment: commentLines(item.LeadComment)}
	if len(keys) > 1 {
		inner, err := r.item(keys[1:], item)
		n.value = block(inner)
		return []node{n}, err
	}
	if elements, ok := objects(item.Val); ok {
		var all []node
		for _, element := range elements {
			n.value, err = r.nodes(element.List)
			if err != nil {
				return nil, err
			}
			all = append(all, n)
			n.comment = nil
		}
		return all, nil
	}
	n.value, err = r.value(item.Val, line)
	return []node{n}, err
}

func key(k *ast.ObjectKey) (string, error) {
	if k.Token.Type == token.IDENT {
		return strings.ToLower(k.Token.Text), nil
	}
	v, err := literal(k.Token)
	if err != nil {
		return "", err
	}
	return strings.ToLower(fmt.Sprint(v)), nil
}

// objects returns the elements of a list that has nothing but objects.
func objects(v ast.Node) ([]*ast.ObjectType, bool) {
	list, ok := v.(*ast.ListType)
	if !ok || len(list.List) == 0 {
		return nil, false
	}
	var all []*ast.ObjectType
	for _, element := range list.List {
		object, ok := element.(*ast.ObjectType)
		if !ok {
			return nil, false
		}
		all = append(all, object)
	}
	return all, true
}

func (r *reader) value(v ast.Node, line int) (any, error) {
	switch v := v.(type) {
	case *ast.LiteralType:
		value, err := literal(v.Token)
		if err != nil {
			err = fmt.Errorf("%s:%d: %w", r.file, line, err)
		}
		return value, err
	case *ast.ObjectType:
		return r.nodes(v.List)
	case *ast.ListType:
		all := make([]any, 0, len(v.List))
		for _, element := range v.List {
			value, err := r.value(element, line)
			if err != nil {
				return nil, err
			}
			all = append(all, value)
		}
		return all, nil
	}
	return nil, fmt.Errorf("%s:%d: not a value", r.file, line)
}

// literal returns the value of a token. The parser's own function panics where it
// finds an error.
func literal(t token.Token) (v any, err error) {
	switch t.Type {
	case token.BOOL:
		v, err = strconv.ParseBool(t.Text)
	case token.NUMBER:
		v, err = strconv.ParseInt(t.Text, 0, 64)
	case token.FLOAT:
		v, err = strconv.ParseFloat(t.Text, 64)
	case token.STRING:
		v, err = plainText(t)
	case token.HEREDOC:
		v = t.Value()
	default:
		err = fmt.Errorf("%q is not a value", t.Text)
	}
	return v, err
}

// plainText returns the value of a string; JSON's null is "" for consul-template.
func plainText(t token.Token) (string, error) {
	if t.Text == "" {
		return "", nil
	}
	if !t.JSON {
		return hclstrconv.Unquote(t.Text)
	}
	var s string
	err := json.Unmarshal([]byte(t.Text), &s)
	return s, err
}

// commentLines returns the lines of a comment without its signs.
func commentLines(group *ast.CommentGroup) []string {
	if group == nil {
		return nil
	}
	var lines []string
	for _, c := range group.List {
		s := c.Text
		if inner, ok := strings.CutPrefix(s, "/*"); ok {
			s = strings.TrimSuffix(inner, "*/")
		}
		for line := range strings.SplitSeq(s, "\n") {
			line = strings.TrimSpace(line)
			line = strings.TrimSpace(strings.TrimLeft(line, "#/*"))
			lines = append(lines, strings.ToValidUTF8(line, "\uFFFD"))
		}
	}
	for len(lines) > 0 && lines[0] == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/jorc/jorc/internal/text"
)

const (
	// maxYAML bounds, in bytes, what a YAML text may grow to when its anchors are
	// expanded; what is beyond could be no part of a profile.
	maxYAML = MaxSize
	// maxYAMLText bounds the text itself: the parser needs a hundred times that.
	maxYAMLText = 1 << 20
)

// ParseYAML reads one document of YAML, or JSON, whose numbers keep their
// spelling. In YAML a plain word is a string, what looks like a JSON number is
// one, as spelled, and dates are strings. Anchors are expanded within bounds.
// Tags other than those of JSON's types, merge keys, members named twice, .nan
// and .inf are errors, and so is a text of blanks and comments only.
//
// It returns ErrInvalid (a *SyntaxError where a place can be named) or
// ErrTooLarge.
func ParseYAML(text string) (Value, error) {
	v, err := ParseJSON([]byte(text))
	if err == nil || json.Valid([]byte(text)) {
		return v, err
	}
	if len(text) > maxYAMLText {
		return Value{}, tooLarge("not JSON (%v), and with %d bytes too long to be read as YAML, which may have %d KiB", err, len(text), maxYAMLText>>10)
	}
	return parseYAML(text)
}

// parseYAML reads the one document of text.
func parseYAML(text string) (v Value, err error) {
	defer func() {
		// The parser is another's: whatever it trips over is bad input.
		if p := recover(); p != nil {
			v, err = Value{}, invalid("the YAML parser gave up: %v", p)
		}
	}()
	dec := yaml.NewDecoder(strings.NewReader(text))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return Value{}, invalid("the text holds only blanks or comments")
	case err != nil:
		return Value{}, invalid("%s", yamlReason(err))
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		if err != nil {
			return Value{}, invalid("%s", yamlReason(err))
		}
		return Value{}, invalid("line %d: a second document begins, and only one is wanted", more.Line)
	}
	if len(doc.Content) != 1 {
		return Value{}, invalid("the text holds no value")
	}
	y := yamlReader{left: maxYAML}
	tree, err := y.tree(doc.Content[0], maxValueDepth)
	return Value{tree: tree}, err
}

func yamlReason(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	return strings.Join(strings.Fields(text), " ")
}

// yamlReader turns nodes into trees; left bounds what they may grow to.
type yamlReader struct{ left int }

func nodeError(n *yaml.Node, format string, args ...any) error {
	return &SyntaxError{Line: max(n.Line, 1), Column: max(n.Column, 1), Reason: fmt.Sprintf(format, args...)}
}

func (y *yamlReader) tree(n *yaml.Node, depth int) (any, error) {
	if y.left -= len(n.Value) + 1; y.left < 0 {
		return nil, tooLarge("line %d: the YAML grows beyond %d KiB when its anchors are expanded", n.Line, maxYAML>>10)
	}
	switch n.Kind {
	case yaml.AliasNode:
		if depth == 0 {
			return nil, nodeError(n, "nested too deep")
		}
		return y.tree(n.Alias, depth-1)
	case yaml.ScalarNode:
		return scalar(n)
	case yaml.SequenceNode, yaml.MappingNode:
		if depth == 0 {
			return nil, nodeError(n, "nested too deep")
		}
		if tag := n.ShortTag(); n.Style&yaml.TaggedStyle != 0 && tag != "!!map" && tag != "!!seq" {
			return nil, nodeError(n, "the tag %q stands for nothing in JSON", shorten(n.Tag))
		}
		if n.Kind == yaml.MappingNode {
			return y.object(n, depth-1)
		}
		return y.array(n, depth-1)
	}
	return nil, nodeError(n, "stands for nothing in JSON")
}

func (y *yamlReader) array(n *yaml.Node, depth int) (any, error) {
	list := make([]any, 0, len(n.Content))
	for _, e := range n.Content {
		tree, err := y.tree(e, depth)
		if err != nil {
			return nil, err
		}
		list = append(list, tree)
	}
	return list, nil
}

func (y *yamlReader) object(n *yaml.Node, depth int) (any, error) {
	object := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, err := y.name(n.Content[i])
		if err != nil {
			return nil, err
		}
		if _, twice := object[name]; twice {
			return nil, nodeError(n.Content[i], "the object has %q twice", shorten(name))
		}
		if object[name], err = y.tree(n.Content[i+1], depth); err != nil {
			return nil, err
		}
	}
	return object, nil
}

// name returns the name of a member: a scalar other than null, as spelled.
func (y *yamlReader) name(n *yaml.Node) (string, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if y.left -= len(n.Value); y.left < 0 {
		return "", tooLarge("line %d: the YAML grows beyond %d KiB when its anchors are expanded", n.Line, maxYAML>>10)
	}
	if n.Kind != yaml.ScalarNode {
		return "", nodeError(n, "an object or list cannot be the name of a member")
	}
	tree, err := scalar(n)
	switch {
	case err != nil:
		return "", err
	case tree == nil:
		return "", nodeError(n, "null cannot be the name of a member: quote it")
	case n.Value == "<<" && isPlain(n):
		return "", nodeError(n, `merge keys ("<<") are not supported: write the members out`)
	}
	return n.Value, nil
}

// quoted are the styles that make any text a string.
const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

func isPlain(n *yaml.Node) bool { return n.Style&(quoted|yaml.TaggedStyle) == 0 }

// scalar returns the tree of one scalar. The spelling decides, not yaml.v3's
// own reading, which turns big integers into floats.
func scalar(n *yaml.Node) (any, error) {
	if !utf8.ValidString(n.Value) {
		return nil, nodeError(n, "not UTF-8")
	}
	tag := ""
	if n.Style&yaml.TaggedStyle != 0 {
		tag = n.ShortTag()
	}
	switch tag {
	case "":
		if n.Style&quoted != 0 {
			return n.Value, nil
		}
		return plainScalar(n)
	case "!!str":
		return n.Value, nil
	case "!!int", "!!float", "!!bool", "!!null":
		tree, err := plainScalar(n)
		if err != nil {
			return nil, err
		}
		kind := (Value{tree: tree}).Kind()
		if kind == "string" || (kind == "number") != (tag == "!!int" || tag == "!!float") || (kind == "null") != (tag == "!!null") {
			return nil, nodeError(n, "%q is no %s", shorten(n.Value), tag)
		}
		return tree, nil
	}
	return nil, nodeError(n, "the tag %q stands for nothing in JSON", shorten(n.Tag))
}

func plainScalar(n *yaml.Node) (any, error) {
	switch text := n.Value; text {
	case "", "~", "null", "Null", "NULL":
		return nil, nil
	case "true", "True", "TRUE":
		return true, nil
	case "false", "False", "FALSE":
		return false, nil
	case ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF":
		return nil, nodeError(n, "JSON has no number %s: quote it if a string is meant", text)
	default:
		if isNumber(text) {
			return json.Number(text), nil
		}
		if number, ok := yamlNumber(text); ok {
			return number, nil
		}
		return text, nil
	}
}

// yamlInt are integers that JSON spells otherwise, with octal as yaml.v3 reads it.
var yamlInt = text.Pattern(`^[-+]?(0x[0-9a-fA-F]+|0b[01]+|0o?[0-7]+|[1-9][0-9]*|0)$`)

// yamlFloat are decimals that JSON spells otherwise.
var yamlFloat = text.Pattern(`^([-+]?)(\.[0-9]+|[0-9]+(?:\.[0-9]*)?)((?:[eE][-+]?[0-9]+)?)$`)

// yamlNumber returns the JSON spelling of a YAML number.
func yamlNumber(text string) (json.Number, bool) {
	if !strings.ContainsRune("+-.0123456789", rune(text[0])) {
		return "", false
	}
	text = strings.ReplaceAll(text, "_", "")
	if len(text) <= maxYAMLInt && yamlInt().MatchString(text) {
		if i, ok := new(big.Int).SetString(text, 0); ok {
			return json.Number(i.String()), true
		}
	}
	m := yamlFloat().FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	whole, fraction, _ := strings.Cut(m[2], ".")
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	if fraction != "" {
		fraction = "." + fraction
	}
	return json.Number(strings.TrimPrefix(m[1], "+") + whole + fraction + m[3]), true
}

// maxYAMLInt bounds the spelling of integers whose base has to be changed.
const maxYAMLInt = 4096

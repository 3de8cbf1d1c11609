package profile

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

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
var yamlInt = regexp.MustCompile(`^[-+]?(0x[0-9a-fA-F]+|0b[01]+|0o?[0-7]+|[1-9][0-9]*|0)$`)

// yamlFloat are decimals that JSON spells otherwise.
var yamlFloat = regexp.MustCompile(`^([-+]?)(\.[0-9]+|[0-9]+(?:\.[0-9]*)?)((?:[eE][-+]?[0-9]+)?)$`)

// yamlNumber returns the JSON spelling of a YAML number.
func yamlNumber(text string) (json.Number, bool) {
	if !strings.ContainsRune("+-.0123456789", rune(text[0])) {
		return "", false
	}
	text = strings.ReplaceAll(text, "_", "")
	if len(text) <= maxYAMLInt && yamlInt.MatchString(text) {
		if i, ok := new(big.Int).SetString(text, 0); ok {
			return json.Number(i.String()), true
		}
	}
	m := yamlFloat.FindStringSubmatch(text)
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

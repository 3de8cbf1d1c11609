package profile

import (
	"encoding/json"
	"math/big"
	"strings"
)

// numberLength returns the length of the JSON number that text begins with, 0
// when it begins with none.
func numberLength(text []byte) int {
	i := 0
	digits := func() bool {
		begin := i
		for i < len(text) && '0' <= text[i] && text[i] <= '9' {
			i++
		}
		return i > begin
	}
	if i < len(text) && text[i] == '-' {
		i++
	}
	if i < len(text) && text[i] == '0' {
		i++
	} else if !digits() {
		return 0
	}
	if i < len(text) && text[i] == '.' {
		if i++; !digits() {
			return 0
		}
	}
	if i < len(text) && (text[i] == 'e' || text[i] == 'E') {
		if i++; i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		if !digits() {
			return 0
		}
	}
	return i
}

// isNumber tells whether text is a JSON number and nothing else.
func isNumber(text string) bool { return text != "" && numberLength([]byte(text)) == len(text) }

// equalNumbers compares exactly and without computing the numbers, so that
// 1e999999999 costs no more than its spelling.
func equalNumbers(a, b json.Number) bool {
	if a == b {
		return true
	}
	x, y := decimalOf(string(a)), decimalOf(string(b))
	if x.digits != y.digits || x.negative != y.negative {
		return false
	}
	return x.digits == "" || x.exponent.Cmp(y.exponent) == 0
}

// decimal is 0.digits × 10^exponent; digits neither begins nor ends with a
// zero and is empty for zero, which has no sign.
type decimal struct {
	negative bool
	digits   string
	exponent *big.Int
}

func decimalOf(number string) decimal {
	var d decimal
	number, d.negative = strings.CutPrefix(number, "-")
	mantissa, exponent := number, ""
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		mantissa, exponent = number[:i], strings.TrimPrefix(number[i+1:], "+")
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	point := len(whole) - (len(whole) + len(fraction) - len(digits))
	if d.digits = strings.TrimRight(digits, "0"); d.digits == "" {
		return decimal{}
	}
	d.exponent = new(big.Int)
	if exponent != "" {
		d.exponent.SetString(exponent, 10)
	}
	d.exponent.Add(d.exponent, big.NewInt(int64(point)))
	return d
}

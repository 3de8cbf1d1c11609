package watch

import (
	"fmt"
	"strings"
	"text/template"
)

// boundedFunctions take the place of those of consul-template and sprig that
// make a list or a string as long as a number says: one large number, or a
// step of zero, would take all memory of the host. What they return otherwise
// is the same.
func (x *execution) boundedFunctions() template.FuncMap {
	return template.FuncMap{
		"indent":          x.indent,
		"sprig_until":     x.until,
		"sprig_untilStep": x.untilStep,
		"sprig_seq":       x.seq,
		"sprig_repeat":    x.repeat,
		"sprig_indent":    x.sprigIndent,
		"sprig_nindent": func(n int, s string) (string, error) {
			out, err := x.sprigIndent(n, s)
			return "\n" + out, err
		},
	}
}

// afford refuses to make more than max_output bytes, or as many numbers.
func (x *execution) afford(n, each int) error {
	if limit := x.opts.MaxOutput; limit > 0 && each > 0 && (n < 0 || n > limit/each) {
		return x.fail("more than template_options { max_output = %d } allows", limit)
	}
	return nil
}

func (x *execution) until(n int) ([]int, error) {
	if n < 0 {
		return x.untilStep(0, n, -1)
	}
	return x.untilStep(0, n, 1)
}

func (x *execution) untilStep(start, stop, step int) ([]int, error) {
	list := []int{}
	if start == stop || start < stop && step < 0 || start > stop && step >= 0 {
		return list, nil
	}
	if step == 0 {
		return nil, x.fail("a step of 0 does not end")
	}
	if err := x.afford((stop-start)/step+1, 8); err != nil {
		return nil, err
	}
	for i := start; start < stop && i < stop || start > stop && i > stop; i += step {
		list = append(list, i)
	}
	return list, nil
}

// seq is sprig's: bash's seq, with its one, two or three arguments.
func (x *execution) seq(params ...int) (string, error) {
	start, step, end := 1, 1, 0
	switch len(params) {
	case 1:
		end = params[0]
	case 2:
		start, end = params[0], params[1]
	case 3:
		start, step, end = params[0], params[1], params[2]
	default:
		return "", nil
	}
	if end < start {
		if len(params) < 3 {
			step = -1
		}
		if step > 0 {
			return "", nil
		}
	}
	past := end + 1
	if end < start {
		past = end - 1
	}
	list, err := x.untilStep(start, past, step)
	return strings.Trim(fmt.Sprint(list), "[]"), err
}

func (x *execution) repeat(n int, s string) (string, error) {
	if n < 0 {
		return "", x.fail("a negative number of times")
	}
	if err := x.afford(n, len(s)); err != nil {
		return "", err
	}
	return strings.Repeat(s, n), nil
}

// indent is consul-template's: lines that are empty stay so.
func (x *execution) indent(spaces int, s string) (string, error) {
	if spaces < 0 {
		return "", x.fail("indent value must be a positive integer")
	}
	if err := x.afford(strings.Count(s, "\n")+1, spaces+1); err != nil {
		return "", err
	}
	pad := strings.Repeat(" ", spaces)
	lines := strings.SplitAfter(s, "\n")
	for i, line := range lines {
		if line != "" && line != "\n" {
			lines[i] = pad + line
		}
	}
	return strings.Join(lines, ""), nil
}

// sprigIndent is sprig's: every line is indented.
func (x *execution) sprigIndent(spaces int, s string) (string, error) {
	if spaces < 0 {
		return "", x.fail("a negative number of spaces")
	}
	if err := x.afford(strings.Count(s, "\n")+1, spaces+1); err != nil {
		return "", err
	}
	pad := strings.Repeat(" ", spaces)
	return pad + strings.ReplaceAll(s, "\n", "\n"+pad), nil
}

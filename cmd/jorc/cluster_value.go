package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/profile"
)

// valueReader reads the values on one command line. A value is given as an
// argument, in a file (@FILE) or on stdin (-), which can be read once.
type valueReader struct {
	env   *environment
	c     *cli.Context
	stdin bool // it was read
}

func (e *environment) values(c *cli.Context) *valueReader { return &valueReader{env: e, c: c} }

// valueHelp describes how values are read.
const valueHelp = "A value is JSON if it is valid JSON, otherwise the text as given, byte for byte; @FILE and - read a file and stdin by the same rule. " +
	"--string treats all of them as plain strings; --yaml reads them as YAML."

// valueFlags select how values are read.
func valueFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "string", Usage: "treat values as plain strings", DisableDefaultText: true},
		&cli.BoolFlag{Name: "yaml", Usage: "read values as YAML", DisableDefaultText: true},
	}
}

// valueParser returns the function that reads a value's text, by --string and --yaml.
func valueParser(c *cli.Context) (func(text string) (profile.Value, error), error) {
	switch {
	case c.Bool("string") && c.Bool("yaml"):
		return nil, usagef(c, "--string and --yaml exclude each other")
	case c.Bool("string"):
		return profile.Text, nil
	case c.Bool("yaml"):
		return profile.ParseYAML, nil
	}
	return profile.ParseValue, nil
}

// parse reads one value. An error names what and not the value.
func (r *valueReader) parse(what, arg string) (profile.Value, error) {
	read, err := valueParser(r.c)
	if err != nil {
		return profile.Value{}, err
	}
	text, err := r.text(arg)
	if err != nil {
		return profile.Value{}, err
	}
	v, err := read(text)
	return v, r.wrong(what, err)
}

// flag reads the value of a flag; nil when it was not given.
func (r *valueReader) flag(name string) (*profile.Value, error) {
	if !r.c.IsSet(name) {
		return nil, nil
	}
	v, err := r.parse("--"+name, r.c.String(name))
	return &v, err
}

func (r *valueReader) wrong(what string, err error) error {
	if err != nil {
		return usagef(r.c, "%s: %v", what, err)
	}
	return nil
}

// text returns the content of the file or of stdin that an argument names, or the argument itself.
func (r *valueReader) text(arg string) (string, error) {
	file, isFile := strings.CutPrefix(arg, "@")
	if arg != "-" && !isFile {
		return arg, nil
	}
	if !isFile {
		file = arg
	}
	data, err := r.file(file)
	return string(data), err
}

// file reads a file, "-" from stdin, up to what a profile can make use of.
func (r *valueReader) file(name string) ([]byte, error) {
	in := r.env.stdin
	if name == "-" {
		if r.stdin {
			return nil, usagef(r.c, "stdin cannot be read twice")
		}
		r.stdin = true
	} else {
		f, err := os.Open(name)
		if err != nil {
			return nil, usagef(r.c, "%v", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, profile.MaxInput+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

// params reads a file with an object of params.
func (r *valueReader) params(name string) (profile.Params, error) {
	data, err := r.file(name)
	if err != nil {
		return nil, err
	}
	p, err := profile.ParseParams(string(data))
	return p, r.wrong(name, err)
}

// pair reads K=V.
func (r *valueReader) pair(arg string) (key string, v profile.Value, err error) {
	key, text, ok := strings.Cut(arg, "=")
	if !ok || key == "" {
		return "", v, usagef(r.c, "--param: write K=V")
	}
	v, err = r.parse(key, text)
	return key, v, err
}

// ref reads --ref, --default and --absent.
func (r *valueReader) ref() (profile.Ref, error) {
	var ref profile.Ref
	var err error
	ref.Absent = r.c.Bool("absent")
	if ref.Value, err = r.flag("ref"); err != nil {
		return ref, err
	}
	if ref.Default, err = r.flag("default"); err != nil {
		return ref, err
	}
	switch {
	case ref.Absent && ref.Value != nil:
		return ref, usagef(r.c, "--absent and --ref exclude each other")
	case ref.Default != nil && ref.Value == nil:
		return ref, usagef(r.c, "--default needs --ref")
	}
	return ref, nil
}

// printValue prints one value: as JSON on one line, or a text as it is.
func (e *environment) printValue(c *cli.Context, v profile.Value, raw bool) error {
	if raw {
		end := ""
		if isTerminal(c.App.Writer) {
			end = "\n"
		}
		_, err := io.WriteString(rawData(c.App.Writer), v.Raw()+end)
		return err
	}
	text := v.String()
	if e.format(c) == formatJSON {
		text = string(v.Indented())
	}
	_, err := fmt.Fprintln(c.App.Writer, text)
	return err
}

// printDocument prints JSON as profiles are written: indented, members sorted,
// numbers as they are.
func printDocument(c *cli.Context, v interface{ Indented() []byte }) error {
	_, err := fmt.Fprintf(c.App.Writer, "%s\n", v.Indented())
	return err
}

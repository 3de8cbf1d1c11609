package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/profile"
)

// valueReader reads the values on one command line: text, @FILE or - for stdin,
// which can be read once.
type valueReader struct {
	env   *environment
	c     *cli.Context
	stdin bool // it was read
}

func (e *environment) values(c *cli.Context) *valueReader { return &valueReader{env: e, c: c} }

// stringFlag makes VALUE, and those of --ref and --default, texts as they are.
func stringFlag() cli.Flag {
	return &cli.BoolFlag{Name: "string", Usage: "take values as texts, exactly as they stand", DisableDefaultText: true}
}

// parse reads a value as JSON or YAML, or with --string as it is.
func (r *valueReader) parse(what, text string) (profile.Value, error) {
	if r.c.Bool("string") {
		v, err := profile.Text(text)
		return v, r.wrong(what, err)
	}
	source, err := r.text(text)
	if err != nil {
		return profile.Value{}, err
	}
	v, err := profile.ParseValue(source)
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

// text is what an argument stands for: a file's content, stdin's, or itself.
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
		return "", v, usagef(r.c, "%q is not K=V", arg)
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
		return ref, usagef(r.c, "--absent and --ref exclude one another")
	case ref.Default != nil && ref.Value == nil:
		return ref, usagef(r.c, "--default needs --ref")
	}
	return ref, nil
}

// printValue prints one value: as JSON on one line, or a text as it is.
func (e *environment) printValue(c *cli.Context, v profile.Value, raw bool) error {
	text := v.String()
	if raw {
		text = v.Raw()
	} else if format, err := e.format(c); err != nil {
		return err
	} else if format == formatJSON {
		text = string(v.Indented())
	}
	_, err := fmt.Fprintln(c.App.Writer, text)
	return err
}

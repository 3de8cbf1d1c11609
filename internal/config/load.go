package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
)

// Options are the inputs of Load besides the files.
type Options struct {
	Getenv    func(string) string // os.Getenv in the program; nil: no environment
	Overrides Overrides
}

// Load starts from the defaults, applies files and directories (their *.hcl and
// *.json in order, without subdirectories), the environment and the flags, and
// validates the result. Every error is an *Error that lists all problems.
//
// A relative path in a file is relative to that file's directory.
func Load(paths []string, o Options) (*Config, error) {
	d := newDecoder()
	body := d.read(paths)
	if d.failed() {
		return nil, d.err()
	}
	c := base()
	d.root(body, &c)
	d.apply(&c, o)
	c.derive()
	d.validate(&c)
	if d.failed() {
		return nil, d.err()
	}
	c.Warnings, _ = d.problems(hcl.DiagWarning)
	return &c, nil
}

// validate checks the parts of the configuration against each other.
func (d *decoder) validate(c *Config) {
	d.checkSettings(c)
	d.checkWorkflows(c)
	d.checkProcesses(c)
	d.checkStages(c)
	d.checkPaths(c)
}

const (
	defaultStateDir     = "/var/lib/jorc"
	defaultPrefix       = "jorc"
	defaultCluster      = "default"
	defaultHTTPAddr     = "127.0.0.1:8520"
	defaultConsulAddr   = "127.0.0.1:8500"
	defaultDNSAddr      = "127.0.0.1:8600"
	defaultDNSPort      = 8600
	defaultConnections  = 64
	minConnections      = 8
	maxHolders          = math.MaxInt32 // of a slot, as a number in a file
	defaultRequiresFor  = "functional"
	defaultEmptyAfter   = 30 * time.Second
	defaultShrinkAfter  = 5 * time.Minute
	defaultCommandTime  = 30 * time.Second
	defaultRenderTime   = 10 * time.Second
	defaultStaleAfter   = 5 * time.Minute
	defaultMaxOutput    = 64 << 20
	defaultMaxData      = 64 << 20
	defaultCheckEvery   = 10 * time.Second
	defaultNetworkCheck = 10 * time.Second
	defaultScriptCheck  = 30 * time.Second
	defaultCycle        = 10 * time.Second
	defaultValidation   = 5 * time.Minute
)

// base returns the defaults that do not depend on other settings.
func base() Config {
	return Config{
		Cluster:       defaultCluster,
		Prefix:        defaultPrefix,
		StateDir:      defaultStateDir,
		OnStop:        "keep",
		LogLevel:      "info",
		RebootCommand: []string{"systemctl", "reboot"},
		HTTP:          HTTP{Addr: defaultHTTPAddr},
		Consul:        Consul{Address: defaultConsulAddr, MaxConnections: defaultConnections},
		DNS:           DNS{Addr: defaultDNSAddr},
		TemplateOpts:  TemplateOptions{RenderTimeout: defaultRenderTime, StaleAfter: defaultStaleAfter, MaxOutput: defaultMaxOutput, MaxData: defaultMaxData},
	}
}

// derive sets the values that depend on other settings.
func (c *Config) derive() {
	if c.VersionFile == "" {
		c.VersionFile, c.DefaultVersionFile = filepath.Join(c.StateDir, "version"), true
	}
	if c.Control.Socket == "" {
		c.Control.Socket = filepath.Join(c.StateDir, "control.sock")
	}
}

const (
	maxFile  = 16 << 20 // bytes of one configuration file
	maxDepth = 100      // brackets within brackets
)

// read parses all files below paths and merges them. A file that is named twice
// is read once.
func (d *decoder) read(paths []string) hcl.Body {
	var bodies []hcl.Body
	done := map[string]bool{}
	for _, path := range paths {
		found, err := expand(path)
		if err != nil {
			d.errs = append(d.errs, err)
			continue
		}
		for _, name := range found {
			abs, err := filepath.Abs(name)
			if err != nil {
				d.errs = append(d.errs, err)
				continue
			}
			if done[abs] {
				continue
			}
			done[abs] = true
			src, err := readFile(name)
			if err != nil {
				d.errs = append(d.errs, err)
				continue
			}
			if f := d.parse(name, src); f != nil {
				bodies = append(bodies, f.Body)
			}
		}
	}
	return hcl.MergeBodies(bodies)
}

// FixtureSuffix ends the names of files that test templates. In a directory of configuration
// files they are passed over.
const FixtureSuffix = ".test.hcl"

// expand returns the configuration files of a path.
func expand(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path) // sorted
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	var files []string
	for _, e := range entries {
		name := e.Name()
		ext := filepath.Ext(name)
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, FixtureSuffix) || (ext != ".hcl" && ext != ".json") {
			continue
		}
		full := filepath.Join(path, name)
		if info, err := os.Stat(full); err == nil && info.IsDir() {
			continue
		}
		files = append(files, full)
	}
	return files, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if len(src) > maxFile {
		return nil, fmt.Errorf("configuration: %s: larger than %d MiB", name, maxFile>>20)
	}
	return bytes.TrimPrefix(src, []byte("\xef\xbb\xbf")), nil
}

// parse parses the syntax of one file; nil when that has errors.
func (d *decoder) parse(name string, src []byte) *hcl.File {
	d.order[name] = len(d.order)
	d.files[name] = &hcl.File{Bytes: src}
	isJSON := filepath.Ext(name) == ".json"
	if rng, err := nesting(name, src, isJSON); err != nil {
		d.errorf(rng, "Invalid syntax", "%v.", err)
		return nil
	}
	var f *hcl.File
	var diags hcl.Diagnostics
	if isJSON {
		f, diags = json.Parse(src, name)
	} else {
		f, diags = hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	}
	d.diags = append(d.diags, diags...)
	if diags.HasErrors() || f == nil {
		return nil
	}
	if isJSON {
		f.Body = d.withoutSchema(f.Body)
	}
	d.files[name] = f
	return f
}

// withoutSchema returns the body of a JSON file without the property by which editors find its schema.
func (d *decoder) withoutSchema(body hcl.Body) hcl.Body {
	content, rest, diags := body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "$schema"}}})
	d.diags = append(d.diags, diags...)
	if a := content.Attributes["$schema"]; a != nil {
		if v, ok := d.expect(a.Expr, a.Name, kindString); ok && strings.Contains(v.AsString(), "json-schema.org/") {
			d.errorf(a.Range, "Not a configuration", "This file is a JSON Schema: keep it outside of the directories that hold configuration.")
		}
	}
	return rest
}

var errTooDeep = errors.New("nested too deep")

// nesting refuses input whose nesting would exhaust the stack of the recursive
// parsers.
func nesting(name string, src []byte, isJSON bool) (hcl.Range, error) {
	if isJSON {
		return nestingJSON(name, src)
	}
	tokens, _ := hclsyntax.LexConfig(src, name, hcl.InitialPos)
	depth, signs, ternaries := 0, 0, 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl, hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen,
			hclsyntax.TokenTemplateSeqEnd, hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc:
			depth = max(0, depth-1)
		case hclsyntax.TokenQuestion:
			ternaries++
		}
		if t.Type == hclsyntax.TokenMinus || t.Type == hclsyntax.TokenBang {
			signs++
		} else {
			signs = 0
		}
		if max(depth, signs, ternaries) > maxDepth {
			return t.Range, errTooDeep
		}
	}
	return hcl.Range{}, nil
}

func nestingJSON(name string, src []byte) (hcl.Range, error) {
	depth, quoted := 0, false
	line, start := 1, 0
	for i := 0; i < len(src); i++ {
		switch b := src[i]; {
		case b == '\n':
			line, start, quoted = line+1, i+1, false
		case quoted && b == '\\':
			i++
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{' || b == '[':
			depth++
		case b == '}' || b == ']':
			depth = max(0, depth-1)
		}
		if depth > maxDepth {
			at := hcl.Pos{Line: line, Column: i - start + 1, Byte: i}
			return hcl.Range{Filename: name, Start: at, End: at}, errTooDeep
		}
	}
	return hcl.Range{}, nil
}

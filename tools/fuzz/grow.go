package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// maxCandidates bounds how many inputs are tried, the shortest first: each costs the start of a process.
const maxCandidates = 120

func growAll(ctx context.Context, all []fuzzer, time string, out io.Writer) error {
	fuzzing, err := newBuilder()
	if err != nil {
		return err
	}
	defer fuzzing.close()
	covering, err := newBuilder()
	if err != nil {
		return err
	}
	defer covering.close()
	for _, f := range all {
		if err := f.grow(ctx, fuzzing, covering, time, out); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}

// grow fuzzes for some time and makes the corpus of the inputs that cover something which shorter ones do not: a
// statement, or one that is executed in another order of magnitude. Inputs that git knows stay.
func (f fuzzer) grow(ctx context.Context, fuzzing, covering *builder, time string, out io.Writer) error {
	cache, err := f.cache(ctx)
	if err != nil {
		return err
	}
	if err := fuzzing.build(ctx, f, "fuzz.test", "-fuzz=."); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, fuzzing.path("fuzz.test"), "-test.run=^$", "-test.fuzz=^"+f.name+"$", "-test.fuzztime="+time, "-test.parallel=1", "-test.fuzzcachedir="+cache)
	cmd.Dir = f.dir()
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	cached, err := filepath.Glob(filepath.Join(cache, f.name, "*"))
	if err != nil {
		return err
	}
	keep, err := f.tracked(ctx)
	if err != nil {
		return err
	}
	have, err := f.inputs()
	if err != nil {
		return err
	}
	candidates, err := shortest(append(have, cached...), keep)
	if err != nil {
		return err
	}
	for _, path := range have { // the candidates are in memory
		if !slices.Contains(keep, filepath.Base(path)) {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	if err := os.MkdirAll(f.corpus(), 0o755); err != nil {
		return err
	}
	chosen, err := f.choose(ctx, covering, keep, candidates)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%-60s %3d inputs of %d, %d of them new\n", f, len(chosen), len(candidates)+len(keep), len(chosen)-len(keep))
	return nil
}

// cache is where go test -fuzz keeps inputs of the package that it found interesting.
func (f fuzzer) cache(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, goCommand(), "env", "GOCACHE")
	cache, err := cmd.Output()
	if err != nil {
		return "", err
	}
	cmd = exec.CommandContext(ctx, goCommand(), "list", "./"+f.pkg)
	cmd.Dir = f.root
	pkg, err := cmd.Output()
	return filepath.Join(strings.TrimSpace(string(cache)), "fuzz", strings.TrimSpace(string(pkg))), err
}

// tracked are the inputs of the corpus that git knows.
func (f fuzzer) tracked(ctx context.Context) ([]string, error) {
	if _, err := os.Stat(f.corpus()); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return listed(ctx, f.corpus())
}

// candidate is an input that may come into the corpus.
type candidate struct {
	name string
	text []byte
}

// shortest reads the shortest inputs, each once and without the named ones.
func shortest(paths, without []string) ([]candidate, error) {
	all := map[string]candidate{}
	for _, path := range paths {
		name := filepath.Base(path)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if len(text) <= maxInput && !slices.Contains(without, name) {
			all[name] = candidate{name, text}
		}
	}
	list := make([]candidate, 0, len(all))
	for _, c := range all {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b candidate) int {
		if n := len(a.text) - len(b.text); n != 0 {
			return n
		}
		return bytes.Compare(a.text, b.text)
	})
	return list[:min(len(list), maxCandidates)], nil
}

// choose leaves those of the candidates in the corpus that add something, and returns all inputs in it.
func (f fuzzer) choose(ctx context.Context, covering *builder, keep []string, candidates []candidate) (chosen []string, err error) {
	known := map[feature]bool{}
	for _, subtest := range append([]string{"seed#.*"}, keep...) {
		found, err := covering.coverage(ctx, f, subtest)
		if err != nil {
			return nil, err
		}
		add(known, found)
	}
	chosen = slices.Clone(keep)
	for _, candidate := range candidates {
		path := filepath.Join(f.corpus(), candidate.name)
		if err := os.WriteFile(path, candidate.text, 0o644); err != nil {
			return nil, err
		}
		found, err := covering.coverage(ctx, f, candidate.name)
		if err != nil {
			return nil, errors.Join(err, os.Remove(path))
		}
		// A fuzzer whose seeds cover all keeps its shortest input nevertheless.
		if len(chosen) < maxInputs && (add(known, found) || len(chosen) == 0) {
			chosen = append(chosen, candidate.name)
			continue
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return chosen, nil
}

// feature is a block of statements, and the order of magnitude in which it was executed.
type feature struct {
	block string
	times int
}

// add adds the blocks to the features that are known, and reports whether one is new.
func add(known map[feature]bool, found []block) (news bool) {
	for _, b := range found {
		if x := (feature{b.place, bits.Len(uint(b.times))}); b.times > 0 && !known[x] {
			known[x], news = true, true
		}
	}
	return news
}

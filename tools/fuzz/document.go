package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
)

// writeDocument measures what each corpus covers and writes it into a file.
func writeDocument(ctx context.Context, file string, all []fuzzer, out io.Writer) error {
	builds, err := newBuilder()
	if err != nil {
		return err
	}
	defer builds.close()
	var b strings.Builder
	b.WriteString(`# Fuzzing

Each parser has a fuzzer. Its corpus, ` + "`testdata/fuzz/FuzzName`" + ` of the package, is in the repository, and ` + "`make test`" + ` runs it. It holds inputs that
failed once, and inputs of which each covers something that shorter ones do not. ` + "`make fuzz NAMES=FuzzLoad TIME=10m`" + ` fuzzes and adds inputs.
` + "`make fuzz-coverage`" + ` writes this table: the share of the statements that a fuzzer's seeds and corpus execute, without any other test.

| package | fuzzer | inputs | bytes | of the functions that it calls | of the package |
|---|---|---|---|---|---|
`)
	inputs, size := 0, int64(0)
	for _, f := range all {
		paths, err := f.inputs()
		if err != nil {
			return err
		}
		bytes := int64(0)
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			bytes += info.Size()
		}
		blocks, err := builds.coverage(ctx, f, "")
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		pkg, called, err := shares(f.dir(), blocks)
		if err != nil {
			return err
		}
		row := fmt.Sprintf("| %s | %s | %d | %d | %s | %s |\n", f.pkg, f.name, len(paths), bytes, called, pkg)
		fmt.Fprint(out, row)
		b.WriteString(row)
		inputs, size = inputs+len(paths), size+bytes
	}
	fmt.Fprintf(&b, "\n%d fuzzers, %d inputs, %d KB.\n", len(all), inputs, (size+512)/1024)
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

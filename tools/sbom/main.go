// Command sbom prints the CycloneDX bill of materials of a Go program, from the build
// information that the linker put into it.
package main

import (
	"debug/buildinfo"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	epoch := flag.Int64("time", 0, "`SECONDS` since 1970 at which the program was built")
	version := flag.String("version", "", "`VERSION` of the program")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: sbom -version VERSION -time SECONDS PROGRAM")
		os.Exit(2)
	}
	if err := write(os.Stdout, flag.Arg(0), *version, time.Unix(*epoch, 0).UTC()); err != nil {
		fmt.Fprintf(os.Stderr, "sbom: %v\n", err)
		os.Exit(1)
	}
}

// write writes the bill of materials of the program at path. The same program, version
// and time give the same bytes.
func write(w io.Writer, path, version string, built time.Time) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the build information of %s: %w", path, err)
	}
	bom := cdx.NewBOM()
	main := component(cdx.ComponentTypeApplication, info.Main.Path, version)
	bom.Metadata = &cdx.Metadata{Timestamp: built.Format(time.RFC3339), Component: &main}
	components := []cdx.Component{component(cdx.ComponentTypeLibrary, "std", info.GoVersion)}
	refs := []string{components[0].BOMRef}
	for _, m := range info.Deps {
		c := module(m)
		components, refs = append(components, c), append(refs, c.BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// module returns the module that was built: a replacement, where there is one.
func module(m *debug.Module) cdx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	c := component(cdx.ComponentTypeLibrary, m.Path, m.Version)
	if m.Sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go:module:sum", Value: m.Sum}}
	}
	return c
}

func component(kind cdx.ComponentType, path, version string) cdx.Component {
	url := "pkg:golang/" + path
	if version != "" {
		url += "@" + version
	}
	return cdx.Component{BOMRef: url, Type: kind, Name: path, Version: version, PackageURL: url}
}

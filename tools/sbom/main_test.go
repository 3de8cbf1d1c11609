package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestWrite reads the test's own program, which contains cyclonedx-go.
func TestWrite(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := write(w, self, "1.2.3", time.Unix(1, 0).UTC()); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two bills of materials of one program differ")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(&first, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if got, want := bom.Metadata.Timestamp, "1970-01-01T00:00:01Z"; got != want {
		t.Errorf("time = %s, want %s", got, want)
	}
	if got, want := bom.Metadata.Component.Version, "1.2.3"; got != want {
		t.Errorf("version = %s, want %s", got, want)
	}
	var found bool
	for _, c := range *bom.Components {
		found = found || strings.HasPrefix(c.PackageURL, "pkg:golang/github.com/CycloneDX/cyclonedx-go@v")
	}
	if !found {
		t.Errorf("components = %v: cyclonedx-go is missing", *bom.Components)
	}
}

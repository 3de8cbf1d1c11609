// Package licenses holds the text of NOTICE: the license of jorc and those of the modules
// that the program contains. tools/licenses makes it.
package licenses

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
)

//go:embed NOTICE.gz
var packed []byte

// Notice returns the text of NOTICE.
func Notice() (string, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", fmt.Errorf("read the licenses: %w", err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return "", fmt.Errorf("read the licenses: %w", err)
	}
	return string(text), nil
}

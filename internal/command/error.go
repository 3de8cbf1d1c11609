package command

import (
	"errors"
	"strings"
)

// quotesOutput is an error whose text quotes a command and its output.
type quotesOutput interface {
	error
	// WithoutOutput returns the error's text without the command and its output.
	WithoutOutput() string
}

// WithoutOutput returns the text of err without the command and output that it quotes, for
// readers who may not see what a command printed. What follows the quotation is left out.
func WithoutOutput(err error) string {
	var quoting quotesOutput
	if !errors.As(err, &quoting) {
		return err.Error()
	}
	before, _, found := strings.Cut(err.Error(), quoting.Error())
	if !found {
		before = "" // a caller changed the quotation
	}
	return before + quoting.WithoutOutput()
}

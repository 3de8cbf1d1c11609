package command

import (
	"bytes"
	"io"
)

// redacted stands in output where a secret was.
const redacted = "[redacted]"

// redactor passes on what is written to it without the secrets, also when one
// comes in pieces: what may be the beginning of one is kept back until that is
// known.
type redactor struct {
	secrets [][]byte // none empty
	held    []byte   // shorter than the longest secret
	to      io.Writer
}

// newRedactor returns nil when there is nothing to keep out.
func newRedactor(secrets []string, to io.Writer) *redactor {
	r := &redactor{to: to}
	for _, s := range secrets {
		if s != "" {
			r.secrets = append(r.secrets, []byte(s))
		}
	}
	if len(r.secrets) == 0 {
		return nil
	}
	return r
}

func (r *redactor) Write(p []byte) (int, error) {
	rest := append(r.held, p...)
	var out []byte
	for {
		at, length := r.first(rest)
		if length == 0 {
			break
		}
		out = append(append(out, rest[:at]...), redacted...)
		rest = rest[at+length:]
	}
	keep := r.begun(rest)
	out = append(out, rest[:len(rest)-keep]...)
	r.held = bytes.Clone(rest[len(rest)-keep:])
	if len(out) == 0 {
		return len(p), nil
	}
	_, err := r.to.Write(out)
	return len(p), err
}

// first finds the first secret in b, the longest of those that begin there;
// length is 0 when there is none.
func (r *redactor) first(b []byte) (at, length int) {
	for _, s := range r.secrets {
		i := bytes.Index(b, s)
		if i >= 0 && (length == 0 || i < at || i == at && len(s) > length) {
			at, length = i, len(s)
		}
	}
	return at, length
}

// begun is how many bytes at the end of b may be the beginning of a secret.
func (r *redactor) begun(b []byte) int {
	most := 0
	for _, s := range r.secrets {
		for n := min(len(s)-1, len(b)); n > most; n-- {
			if bytes.HasSuffix(b, s[:n]) {
				most = n
			}
		}
	}
	return most
}

// flush passes on what was kept back and came to nothing.
func (r *redactor) flush() {
	if len(r.held) > 0 {
		_, _ = r.to.Write(r.held) // as in pump: nobody is left to tell
		r.held = nil
	}
}

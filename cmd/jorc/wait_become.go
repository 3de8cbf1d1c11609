package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
)

// tokenVariables are kept from programs that jorc turns into.
var tokenVariables = [...]string{
	"CONSUL_HTTP_TOKEN", "CONSUL_HTTP_TOKEN_FILE", "CONSUL_HTTP_AUTH", "CONSUL_TOKEN", "VAULT_TOKEN", "VAULT_TOKEN_FILE",
}

// become replaces this process by a program; it returns only when that fails.
// Unlike a child's, the program's environment keeps systemd's sockets: it is
// the unit's main process from here on.
func (e *environment) become(program []string, passToken bool) error {
	environ := e.environ()
	if !passToken {
		environ = withoutTokens(environ)
	}
	path, err := exec.LookPath(program[0])
	if err == nil {
		err = e.exec(path, program, environ)
	}
	if err == nil {
		return nil // only a test's exec comes back
	}
	code := exitCannotRun
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	var lookup *exec.Error
	if errors.As(err, &lookup) {
		err = lookup.Err
	}
	return &exitError{code: code, err: fmt.Errorf("run %s: %w", program[0], err)}
}

func withoutTokens(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(tokenVariables[:], name)
	})
}

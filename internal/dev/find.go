package dev

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
)

// remedy is the advice if no consul program is found.
const remedy = "install Consul (https://developer.hashicorp.com/consul/install), set CONSUL_BIN to its path, or run 'make consul' in jorc's sources"

// ErrNoConsul is returned if no consul program is found.
var ErrNoConsul = errors.New("no consul program found: " + remedy)

// FindConsul returns the path of the consul program: variable (the value of
// CONSUL_BIN) if it is not empty, the one beside the program self, or the one
// on PATH. The error wraps ErrNoConsul, or says why CONSUL_BIN cannot be run.
func FindConsul(variable, self string) (string, error) {
	if variable != "" {
		path, err := exec.LookPath(variable)
		if err != nil {
			return "", fmt.Errorf("CONSUL_BIN=%s: %w; %s", variable, errors.Unwrap(err), remedy)
		}
		return path, nil
	}
	for _, name := range []string{self, resolved(self)} {
		beside := filepath.Join(filepath.Dir(name), "consul")
		if path, err := exec.LookPath(beside); name != "" && err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("consul")
	if err != nil {
		return "", ErrNoConsul
	}
	return path, nil
}

func resolved(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}

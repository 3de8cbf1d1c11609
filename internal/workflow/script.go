package workflow

import (
	"path/filepath"
	"strings"
)

// interpreter is who runs a script: what its shebang names, split as the kernel
// does, or /bin/sh. Naming it makes scripts run on file systems mounted noexec.
func interpreter(script string) []string {
	line, isShebang := strings.CutPrefix(script, "#!")
	if !isShebang {
		return []string{"/bin/sh"}
	}
	line, _, _ = strings.Cut(line, "\n")
	line = strings.TrimSpace(line)
	program, argument, _ := strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
	if program == "" {
		return []string{"/bin/sh"}
	}
	if argument = strings.TrimSpace(argument); argument != "" {
		return []string{program, argument}
	}
	return []string{program}
}

// tidy brings a shebang to the front when only blank lines, such as template
// actions leave, stand before it.
func tidy(script string) string {
	if rest := strings.TrimLeft(script, " \t\r\n"); strings.HasPrefix(rest, "#!") {
		return rest
	}
	return script
}

// argv is the command of a step: its arguments, or its script in dir.
func (s *step) argv(dir string) []string {
	if s.Script == "" {
		return s.Command
	}
	return append(append([]string{}, s.Interpreter...), filepath.Join(dir, s.Script))
}

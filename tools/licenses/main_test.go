package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mit is the body of the MIT license.
const mit = `Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
`

// project writes a program that uses the module of ../dependency, only on Windows.
func project(t *testing.T) (root, dependency string) {
	t.Helper()
	dir := t.TempDir()
	root, dependency = filepath.Join(dir, "root"), filepath.Join(dir, "dependency")
	for path, text := range map[string]string{
		"root/go.mod":                    "module example.com/jorc\n\ngo 1.26.0\n\nrequire example.com/other v1.0.0\n\nreplace example.com/other => ../dependency\n",
		"root/LICENSE":                   "Copyright 2026 one\n\n" + mit,
		"root/cmd/jorc/main.go":          "package main\n\nfunc main() {}\n",
		"root/cmd/jorc/x_windows.go":     "package main\n\nimport _ \"example.com/other/deep\"\n",
		"root/internal/licenses/keep":    "",
		"dependency/go.mod":              "module example.com/other\n\ngo 1.26.0\n",
		"dependency/LICENSE":             "Copyright (c) 2026 two\n\n" + mit,
		"dependency/deep/deep.go":        "package deep\n",
		"dependency/deep/NOTICE":         "made with care\n",
		"dependency/not/linked/LICENSE":  "of a package that is not linked",
		"dependency/not/linked/other.go": "package other\n",
	} {
		write(t, filepath.Join(dir, path), text)
	}
	return root, dependency
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestNotice(t *testing.T) {
	t.Parallel()
	root, dependency := project(t)
	if err := run(root, "", false); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, "NOTICE"))
	if err != nil {
		t.Fatal(err)
	}
	got := string(data)
	for _, want := range []string{"example.com/jorc ", "../dependency ", "std ", "Copyright 2026 one", "Copyright (c) 2026 two", "made with care"} {
		if !strings.Contains(got, want) {
			t.Errorf("NOTICE lacks %q", want)
		}
	}
	if got, want := strings.Count(got, "Permission is hereby granted"), 1; got != want {
		t.Errorf("the text that two modules have stands there %d times, want %d", got, want)
	}
	if err := run(root, "", true); err != nil {
		t.Errorf("check of what was just written: %v", err)
	}

	write(t, filepath.Join(dependency, "LICENSE"), "Copyright (c) 2027 three\n\n"+mit)
	if err := run(root, "", true); err == nil || !strings.Contains(err.Error(), "NOTICE is not that of the modules") {
		t.Errorf("check with another license: %v", err)
	}
	if err := run(root, "", false); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sh", "-c", `echo other | gzip >"$1"`, "sh", filepath.Join(root, embeddedFile)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := run(root, "", true); err == nil || !strings.Contains(err.Error(), embeddedFile+" differs") {
		t.Errorf("check with another embedded file: %v", err)
	}
}

// TestRefusesLicenses: nothing is written for a module without a license, or with one that
// is not allowed.
func TestRefusesLicenses(t *testing.T) {
	t.Parallel()
	gpl, err := os.ReadFile("testdata/GPL-3.0")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ license, want string }{
		"none":         {"", "no license in"},
		"not allowed":  {string(gpl), "is under GPL-3.0, which tools/licenses does not allow"},
		"unknown text": {"Do with it what you can agree upon with us in writing.\n", "is no license that is known"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, dependency := project(t)
			if path := filepath.Join(dependency, "LICENSE"); test.license != "" {
				write(t, path, test.license)
			} else if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := run(root, "", false); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want %q in it", err, test.want)
			}
			if _, err := os.Stat(filepath.Join(root, "NOTICE")); !os.IsNotExist(err) {
				t.Errorf("NOTICE: %v, want that it does not exist", err)
			}
		})
	}
}

package config_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
)

// seed adds every file below testdata, and input that is hard for parsers.
func seed(f *testing.F) {
	f.Helper()
	err := filepath.WalkDir(testdata, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) == ".golden" {
			return err
		}
		src, err := os.ReadFile(path)
		f.Add(src, filepath.Ext(path) == ".json")
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range hostile(1000) {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
}

// hostile returns inputs whose cost could grow faster than their size.
func hostile(n int) []string {
	all := []string{
		"member {\n params = { a = " + strings.Repeat("[for x in [1,2,3,4,5,6,7,8,9]: ", 20) + "x" + strings.Repeat("]", 20) + " }\n}",
		"service \"w\" {\n tags = " + strings.Repeat("[for x in [1,2,3,4,5,6,7,8,9]: ", 20) + "x" + strings.Repeat("]", 20) + "\n}",
		"member {\n params = { a = 1e999999999 }\n}",
		"service \"w\" {\n port = 1e999999999\n}",
		`{"member": {"params": {"a": 1e999999999}}}`,
		"static {\n paths = [\"/" + strings.Repeat("**/", n) + "x\"]\n}",
		"static {\n paths = [\"/" + strings.Repeat("{a,", n) + "\"]\n}",
	}
	for _, part := range []string{"[", "{", "(", "-", "!", "1?", "1+", "a.", "a[", "\"${", "%{if ", "<<A\n", "b {\n", "{a=", "{\"a\":", "\"", "\\", "${", "[[\"x\","} {
		all = append(all, strings.Repeat(part, n), "x = "+strings.Repeat(part, n), "member {\n params = {\n a = "+strings.Repeat(part, n)+"1\n}\n}")
	}
	return all
}

// file writes a configuration file in the syntax of its name.
func file(t *testing.T, src []byte, isJSON bool) string {
	t.Helper()
	name := "fuzz.hcl"
	if isJSON {
		name = "fuzz.json"
	}
	return write(t, name, string(src))
}

// TestHostileInput ends: a load whose time grows without bound would not.
func TestHostileInput(t *testing.T) {
	t.Parallel()
	for _, s := range hostile(3_000) {
		for _, isJSON := range []bool{false, true} {
			_, err := config.Load([]string{file(t, []byte(s), isJSON)}, config.Options{})
			if err != nil && len(err.Error()) > 1<<20 {
				t.Errorf("%.40q: the error has %d bytes", s, len(err.Error()))
			}
		}
	}
}

func FuzzLoad(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, src []byte, isJSON bool) {
		c, err := config.Load([]string{file(t, src, isJSON)}, config.Options{})
		if (c == nil) == (err == nil) {
			t.Errorf("got %v and %v", c, err)
		}
		if err != nil && err.Error() == "" {
			t.Error("an error without text")
		}
	})
}

func FuzzServiceFile(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, src []byte, isJSON bool) {
		services, err := config.ParseServiceFile(file(t, src, isJSON))
		if err != nil && (services != nil || err.Error() == "") {
			t.Errorf("got %v and %q", services, err)
		}
	})
}

// FuzzValues: whatever an accepted value is written as, it is within its limits.
func FuzzValues(f *testing.F) {
	for _, s := range []string{
		"30s", "1", "-1s", "", "1h1m1s", "9223372036854775807ns", "50ms:2s", "0s:1s", ":", "2562047h",
		"host", "host:80", "[::1]:80", "::1", "[", "]", "[]", "50%", "3", "%", "101%",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ReplaceAll(strings.ReplaceAll(strconv.Quote(s), "${", "$${"), "%{", "%%{")
		if got, err := loadTemplate(t, "empty_after = "+s); err == nil && got.EmptyAfter < 0 {
			t.Errorf("%s gives %v", s, got.EmptyAfter)
		}
		if got, err := loadTemplate(t, "wait = "+s); err == nil && (got.Wait.Min < 0 || got.Wait.Max < got.Wait.Min) {
			t.Errorf("%s gives %v", s, got.Wait)
		}
		if got, err := loadTemplate(t, "max_shrink = "+s); err == nil && (got.MaxShrink == "" || got.MaxShrink[0] < '0' || got.MaxShrink[0] > '9') {
			t.Errorf("%s gives %q", s, got.MaxShrink)
		}
		c, err := config.Load([]string{write(t, "a.hcl", "service \"w\" {\n tagged_addresses = { a = "+s+" }\n}")}, config.Options{})
		if err != nil {
			return
		}
		if a := c.Services[0].TaggedAddresses["a"]; a.Host == "" || a.Port < 0 || a.Port > 65535 || strings.ContainsAny(a.Host, "/ ") {
			t.Errorf("%s gives %+v", s, a)
		}
	})
}

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// seed adds every file below testdata and some shapes that parsers dislike.
func seed(f *testing.F) {
	f.Helper()
	err := filepath.WalkDir("../../testdata/config", func(path string, e os.DirEntry, err error) error {
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

// hostile are inputs whose cost could grow faster than their size.
func hostile(n int) []string {
	all := []string{
		"member {\n params = { a = " + strings.Repeat("[for x in [1,2,3,4,5,6,7,8,9]: ", 20) + "x" + strings.Repeat("]", 20) + " }\n}",
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

func loadBytes(src []byte, isJSON bool) (*Config, error) {
	d := newDecoder()
	name := "fuzz.hcl"
	if isJSON {
		name = "fuzz.json"
	}
	c := base()
	if f := d.parse(name, src); f != nil {
		d.root(f.Body, &c)
		c.derive()
		d.validate(&c)
	}
	if d.failed() {
		return nil, d.err()
	}
	return &c, nil
}

// deadline is far above what any input takes; it only tells growth without
// bound from work.
const deadline = 20 * time.Second

func bounded(t *testing.T, what string, run func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); run() }()
	select {
	case <-done:
	case <-time.After(deadline):
		t.Fatalf("%s did not end", what)
	}
}

func TestHostileInput(t *testing.T) {
	t.Parallel()
	for _, s := range hostile(3_000) {
		for _, isJSON := range []bool{false, true} {
			bounded(t, s[:min(len(s), 40)], func() {
				if _, err := loadBytes([]byte(s), isJSON); err != nil && len(err.Error()) > 1<<20 {
					t.Errorf("%.40q: the error has %d bytes", s, len(err.Error()))
				}
			})
		}
	}
}

func FuzzLoad(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, src []byte, isJSON bool) {
		bounded(t, "Load", func() {
			c, err := loadBytes(src, isJSON)
			if (c == nil) == (err == nil) {
				t.Errorf("got %v and %v", c, err)
			}
			if err != nil && err.Error() == "" {
				t.Error("an error without text")
			}
		})
	})
}

func FuzzServiceFile(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, src []byte, isJSON bool) {
		d := newDecoder()
		name := "fuzz.hcl"
		if isJSON {
			name = "fuzz.json"
		}
		if root := d.expression(name, src); root != nil {
			d.serviceFile(root)
		}
		if d.failed() && d.err().Error() == "" {
			t.Error("an error without text")
		}
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"30s", "1", "-1s", "", "1h1m1s", "9223372036854775807ns"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := parseDuration(s); v < 0 || (err != nil && v != 0) {
			t.Errorf("%q gives %v, %v", s, v, err)
		}
	})
}

func FuzzParseWait(f *testing.F) {
	for _, s := range []string{"50ms:2s", "5s", "0s:1s", ":", "2562047h", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if w, err := parseWait(s); err == nil && (w.Min < 0 || w.Max < w.Min) {
			t.Errorf("%q gives %v", s, w)
		}
	})
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"host", "host:80", "[::1]:80", "::1", "[", "]", "[]", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if a, err := parseAddress(s); err == nil && (a.Host == "" || a.Port < 0 || a.Port > 65535 || strings.ContainsAny(a.Host, "/ ")) {
			t.Errorf("%q gives %+v", s, a)
		}
	})
}

func FuzzParseShrink(f *testing.F) {
	for _, s := range []string{"50%", "3", "%", "101%", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if parseShrink(s) == nil && (s == "" || s[0] < '0' || s[0] > '9') {
			t.Errorf("%q was accepted", s)
		}
	})
}

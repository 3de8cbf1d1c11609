package profile_test

import (
	"errors"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

// js reads JSON that the test knows to be good.
func js(t testing.TB, text string) profile.Value {
	t.Helper()
	v, err := profile.ParseJSON([]byte(text))
	if err != nil {
		t.Fatalf("ParseJSON(%s) = %v", text, err)
	}
	return v
}

func ref(t testing.TB, text string) *profile.Value {
	t.Helper()
	v := js(t, text)
	return &v
}

func params(t testing.TB, text string) profile.Params {
	t.Helper()
	p, err := js(t, text).Params()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// doc reads a whole profile; "{…}" of sections is completed with name and
// reference to itself.
func doc(t testing.TB, text string) profile.Document {
	t.Helper()
	d, err := profile.Decode([]byte(text))
	if err != nil {
		t.Fatalf("Decode(%s) = %v", text, err)
	}
	return d
}

// shared returns a new profile with these params beside its own name.
func shared(t testing.TB, text string) profile.Document {
	t.Helper()
	d, err := profile.New("prod")
	if err != nil {
		t.Fatal(err)
	}
	e := profile.Editor{}
	if d, err = e.SetParams(d, profile.Scope{}, params(t, text)); err != nil {
		t.Fatal(err)
	}
	return d
}

func encoded(t testing.TB, d profile.Document) string {
	t.Helper()
	data, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func wantIs(t *testing.T, what string, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("%s: error %v, want %v", what, err, class)
	}
	if err != nil {
		wantLine(t, what, err)
	}
}

// wantLine: errors are one line.
func wantLine(t *testing.T, what string, err error) {
	t.Helper()
	for _, r := range err.Error() {
		if r == '\n' || r == '\r' {
			t.Errorf("%s: the error has several lines: %q", what, err)
			return
		}
	}
}

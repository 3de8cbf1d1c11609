package profile_test

import (
	"fmt"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

// large returns a profile of a thousand params, about 100 KB.
func large(b *testing.B) profile.Document {
	b.Helper()
	d := shared(b, `{}`)
	p := profile.Params{}
	for i := range 1000 {
		p[fmt.Sprintf("group-%d/param-%d", i%7, i)] = js(b, fmt.Sprintf(`{"n":%d,"list":["a","b",{"c":"some text of usual length"}],"x":1.50}`, i))
	}
	var e profile.Editor
	d, err := e.SetParams(d, profile.Scope{}, p)
	if err != nil {
		b.Fatal(err)
	}
	return d
}

func BenchmarkDecode(b *testing.B) {
	data := []byte(encoded(b, large(b)))
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := profile.Decode(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	d := large(b)
	b.SetBytes(int64(len(encoded(b, d))))
	for b.Loop() {
		if _, err := d.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSet is what one attempt of a compare-and-swap computes, decoding and
// encoding aside.
func BenchmarkSet(b *testing.B) {
	var e profile.Editor
	for name, d := range map[string]profile.Document{"large": large(b), "small": shared(b, `{"n":1}`)} {
		v := js(b, `2`)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := e.Set(d, profile.Scope{}, "n", v, profile.Ref{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompileSchema(b *testing.B) {
	d := shared(b, `{}`)
	schema := js(b, `{"type":"object","properties":{"port":{"type":"integer","minimum":1,"maximum":65535},"name":{"pattern":"^[a-z]+$"}},"additionalProperties":false}`)
	for b.Loop() {
		var e profile.Editor
		if _, err := e.SetSchema(d, "p", schema); err != nil {
			b.Fatal(err)
		}
	}
}

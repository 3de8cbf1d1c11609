package workflow

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseS3Credentials(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"[default]\naws_access_key_id = a\naws_secret_access_key = b=c==\n", "map[aws_access_key_id:a aws_secret_access_key:b=c==]"},
		{"\ufeff# x\r\n; y\r\n\r\n[ default ] # z\r\nAWS_ACCESS_KEY_ID=a\r\n", "map[aws_access_key_id:a]"},
		{"[default]\nregion = x\ns3 =\n  max = 1\n\tnested\naws_session_token=t", "map[aws_session_token:t region:x s3:]"},
		{"[other]\naws_access_key_id = x\n[default]\n", "map[]"},
		{"[default]\naws_access_key_id = a\n[other]\naws_access_key_id = x\n", "map[aws_access_key_id:a]"},
		{"[other]\na = x\n", "there is no section [default]"},
		{"", "there is no section [default]"},
		{"[default]\nhidden\n", "line 2: want KEY = VALUE"},
		{"[default]\n= hidden\n", "line 2: want KEY = VALUE"},
		{"\n[hidden\n", "line 2: a section is [NAME]"},
		{"[default] hidden\n", "line 1: a section is [NAME]"},
	} {
		keys, err := parseS3Credentials(test.text)
		got := fmt.Sprint(keys)
		if err != nil {
			got = err.Error()
		}
		want(t, test.text, got, test.want)
	}
}

// FuzzParseS3Credentials: errors never repeat a value, and values stay in their line.
func FuzzParseS3Credentials(f *testing.F) {
	f.Add("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
	f.Add("[default]\n  x\nkey\n")
	f.Add("[\xff]\n=\n")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := parseS3Credentials(text)
		if err != nil {
			if keys != nil || len(err.Error()) > 60 {
				t.Errorf("got %v, %q", keys, err)
			}
			return
		}
		if !strings.Contains(text, "[") {
			t.Errorf("%q has no section", text)
		}
		for name, value := range keys {
			if name == "" || strings.ContainsAny(name+value, "\n") || name != strings.TrimSpace(name) || value != strings.TrimSpace(value) {
				t.Errorf("got %q = %q", name, value)
			}
		}
	})
}

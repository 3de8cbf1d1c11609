package config

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want time.Duration
		ok   bool
	}{
		{"30s", 30 * time.Second, true},
		{"1h30m", 90 * time.Minute, true},
		{"50ms", 50 * time.Millisecond, true},
		{"0", 0, true},
		{"0s", 0, true},
		{"30", 0, false},
		{"1.5", 0, false},
		{"-1s", 0, false},
		{"", 0, false},
		{"1d", 0, false},
		{"s", 0, false},
		{" 1s", 0, false},
		{"9999999999h", 0, false},
	} {
		got, err := parseDuration(tt.in)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("parseDuration(%q) = %v, %v, want %v, ok %v", tt.in, got, err, tt.want, tt.ok)
		}
	}
}

func TestParseWait(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want Wait
		ok   bool
	}{
		{"50ms:2s", Wait{50 * time.Millisecond, 2 * time.Second}, true},
		{"5s", Wait{5 * time.Second, 20 * time.Second}, true},
		{"5s:5s", Wait{5 * time.Second, 5 * time.Second}, true},
		{"0s", Wait{}, true},
		{"0s:0s", Wait{}, true},
		{"0s:5s", Wait{}, false},
		{"5s:1s", Wait{}, false},
		{"5s:", Wait{}, false},
		{":5s", Wait{}, false},
		{"1s:2s:3s", Wait{}, false},
		{"5", Wait{}, false},
		{"", Wait{}, false},
		{"2000000h", Wait{}, false},
	} {
		got, err := parseWait(tt.in)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("parseWait(%q) = %v, %v, want %v, ok %v", tt.in, got, err, tt.want, tt.ok)
		}
	}
}

func TestParseAddress(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want Address
		ok   bool
	}{
		{"10.0.0.5", Address{Host: "10.0.0.5"}, true},
		{"10.0.0.5:80", Address{"10.0.0.5", 80}, true},
		{"web.example:8080", Address{"web.example", 8080}, true},
		{"web", Address{Host: "web"}, true},
		{"[::1]:80", Address{"::1", 80}, true},
		{"::1", Address{Host: "::1"}, true},
		{"[::1]", Address{Host: "::1"}, true},
		{"fe80::1%eth0", Address{Host: "fe80::1%eth0"}, true},
		{"", Address{}, false},
		{":80", Address{}, false},
		{"host:", Address{}, false},
		{"host:0", Address{}, false},
		{"host:65536", Address{}, false},
		{"host:+80", Address{}, false},
		{"host:http", Address{}, false},
		{"a:b:c", Address{}, false},
		{"[::1", Address{}, false},
		{"[10.0.0.5]", Address{}, false},
		{"http://host", Address{}, false},
		{"me@host:80", Address{}, false},
		{"two words", Address{}, false},
	} {
		got, err := parseAddress(tt.in)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("parseAddress(%q) = %v, %v, want %v, ok %v", tt.in, got, err, tt.want, tt.ok)
		}
	}
}

func TestParseShrinkAndPerms(t *testing.T) {
	t.Parallel()
	shrink := func(s string) error { return parseShrink(s) }
	perms := func(s string) error { _, err := parsePerms(s); return err }
	for _, tt := range []struct {
		what  string
		parse func(string) error
		in    string
		ok    bool
	}{
		{"shrink", shrink, "50%", true},
		{"shrink", shrink, "0%", true},
		{"shrink", shrink, "100%", true},
		{"shrink", shrink, "3", true},
		{"shrink", shrink, "101%", false},
		{"shrink", shrink, "-1", false},
		{"shrink", shrink, "5.5%", false},
		{"shrink", shrink, "%", false},
		{"shrink", shrink, "", false},
		{"perms", perms, "0644", true},
		{"perms", perms, "600", true},
		{"perms", perms, "4755", true},
		{"perms", perms, "0888", false},
		{"perms", perms, "10000", false},
		{"perms", perms, "0o644", false},
		{"perms", perms, "6", false},
		{"perms", perms, "", false},
	} {
		if err := tt.parse(tt.in); (err == nil) != tt.ok {
			t.Errorf("%s %q: got %v, want ok %v", tt.what, tt.in, err, tt.ok)
		}
	}
}

func TestConsulAddr(t *testing.T) {
	t.Parallel()
	for in, ok := range map[string]bool{
		"127.0.0.1:8500": true, "consul": true, "[::1]:8500": true, "http://consul:8500": true, "https://consul": true,
		"https://consul/path": true, "unix:///run/consul.sock": true, "https://[::1]:8501": true,
		"": false, "unix://run": false, "ftp://x": false, "http://": false, "http://a b": false, "http://me:pw@x": false, "http://x?y": false,
	} {
		if err := consulAddr(in); (err == nil) != ok {
			t.Errorf("consulAddr(%q) = %v, want ok %v", in, err, ok)
		}
	}
}

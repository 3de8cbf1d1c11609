package blocker_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/blocker"
)

func TestParseTarget(t *testing.T) {
	t.Parallel()
	tests := map[string]blocker.Target{
		"web":                       {Service: "web", Count: 1},
		"web=3":                     {Service: "web", Count: 3},
		"primary.mysql":             {Tag: "primary", Service: "mysql", Count: 1},
		"v1.2.web@dc-2=10":          {Tag: "v1.2", Service: "web", Datacenter: "dc-2", Count: 10},
		"a=b=2":                     {Service: "a=b", Count: 2},
		"my web":                    {Service: "my web", Count: 1},
		"a/b":                       {Service: "a/b", Count: 1},
		"a@b@dc1":                   {Service: "a@b", Datacenter: "dc1", Count: 1},
		"ünï":                       {Service: "ünï", Count: 1},
		"web.service.consul.":       {Name: "web.service.consul.", Count: 1},
		"web.service.consul.=2":     {Name: "web.service.consul.", Count: 2},
		"_web._tcp.service.consul.": {Name: "_web._tcp.service.consul.", Count: 1},
		"n1.node.consul.":           {Name: "n1.node.consul.", Count: 1},
		"db.example.com.=1000000":   {Name: "db.example.com.", Count: 1_000_000},
	}
	for text, want := range tests {
		got, err := blocker.ParseTarget(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got)\n%s", text, diff)
		}
		if got.String() != text {
			t.Errorf("%q is written as %q", text, got)
		}
	}
}

func TestParseTargetPointsAtTheFault(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pos    int
		reason string
	}{
		"":                               {1, "nothing to wait for"},
		"web=":                           {5, "number after = is missing"},
		"web=x":                          {5, `not 'x'`},
		"web=1x":                         {6, `not 'x'`},
		"web=-1":                         {5, `not '-'`},
		"web=0":                          {5, "at least 1"},
		"web=1000001":                    {5, "more than 1000000"},
		"web=99999999999999999999":       {5, "more than"},
		"a=b":                            {3, "want a number"},
		"web@":                           {5, "datacenter after @ is missing"},
		"web@d.c":                        {6, "datacenter's name"},
		"wöb@d c=2":                      {6, "datacenter's name"},
		"=2":                             {1, "the service is missing"},
		"@dc1":                           {1, "the service is missing"},
		".web":                           {1, "the tag is missing"},
		" web":                           {1, "a space before the service"},
		"web =2":                         {4, "a space after the service"},
		"tag .web":                       {4, "a space after the tag"},
		"we\tb":                          {3, "cannot be part of a name"},
		"we\xffb":                        {3, "cannot be part of a name"},
		"web.service.consul=2":           {19, "needs a dot at its end"},
		".":                              {1, "the root"},
		"a..b.":                          {3, "an empty part"},
		"a b.":                           {2, "cannot be part of a DNS name"},
		"ü.example.":                     {1, "cannot be part of a DNS name"},
		strings.Repeat("x", 64) + ".":    {64, "holds 63"},
		strings.Repeat("x.", 127) + "x.": {254, "longer than"},
	}
	for text, want := range tests {
		_, err := blocker.ParseTarget(text)
		var e *blocker.TargetError
		if !errors.As(err, &e) {
			t.Errorf("%q: error %v", text, err)
			continue
		}
		if e.Pos != want.pos || !strings.Contains(e.Reason, want.reason) {
			t.Errorf("%q: character %d: %s; want character %d: …%s…", text, e.Pos, e.Reason, want.pos, want.reason)
		}
	}
}

func TestDNSName(t *testing.T) {
	t.Parallel()
	tests := map[string]string{ // a reason when it ends without a dot
		"web":                              "web.service.consul.",
		"v1.2.web@dc2":                     "v1.2.web.service.dc2.consul.",
		"a_b":                              "a_b.service.consul.",
		"a/b":                              "a/b.service.consul.",
		"service":                          "service.service.consul.",
		"_web":                             "_web.service.consul.",
		"db.example.com.":                  "db.example.com.",
		"my web":                           `contains ' '`,
		"we'b":                             `contains '\''`,
		"ünï":                              `contains 'ü'`,
		"a@b@dc1":                          `contains '@'`,
		"a..web":                           "empty part",
		"_tag._web":                        "RFC 2782",
		"web@node":                         "means something else",
		strings.Repeat("x", 64):            "has 64 bytes",
		strings.Repeat("tag.", 70) + "web": "DNS holds 253",
	}
	for text, want := range tests {
		target, err := blocker.ParseTarget(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got, err := target.DNSName()
		if strings.HasSuffix(want, ".") {
			if got != want || err != nil {
				t.Errorf("%q = %q, %v; want %q", text, got, err, want)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want an error with %q", text, got, err, want)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"web", "v1.2.web@dc1=3", "web.service.consul.=2", "a=b=1", "@", "=", ".", "\xff", "ü@=", "a..b.=", "web =1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		target, err := blocker.ParseTarget(text)
		if err != nil {
			var e *blocker.TargetError
			if !errors.As(err, &e) || e.Pos < 1 || e.Pos > len(text)+1 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if target.Count < 1 || (target.Service == "") == (target.Name == "") {
			t.Fatalf("%q = %+v", text, target)
		}
		again, err := blocker.ParseTarget(target.String())
		if err != nil || again != target {
			t.Fatalf("%q = %+v, written as %q, read as %+v, %v", text, target, target, again, err)
		}
		if name, err := target.DNSName(); err == nil && !strings.HasSuffix(name, ".") {
			t.Fatalf("%q asks for %q", text, name)
		}
	})
}

package fleetlock

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

// FuzzRead: what is accepted has an id and a group as the protocol has them.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		`{"client_params":{"id":"a","group":"default"}}`, `{}`, `{"client_params":null}`, `[`, ``, `{"client_params":{"id":"a","group":"a"}}x`,
		`{"client_params":{"ID":"a","GROUP":"a"}}`, strings.Repeat("[", maxBody),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set(header, "true")
		c, code, err := read(httptest.NewRecorder(), r)
		switch {
		case err == nil && (c.ID == "" || c.Group == "" || strings.Trim(c.Group, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") != "" || len(body) > maxBody):
			t.Errorf("%q is accepted as %+v", body, c)
		case err != nil && code != http.StatusBadRequest && code != http.StatusRequestEntityTooLarge:
			t.Errorf("%q: status %d, %v", body, code, err)
		}
	})
}

// FuzzAddress: no cell is two addresses.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"0100007F:2148", "00000000000000000000000001000000:2148", "0000000000000000FFFF00000100007F:2148", ":", "0100007F", "0100007F00:2148"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, cell string) {
		v4, v6 := netip.MustParseAddrPort("127.0.0.1:8520"), netip.MustParseAddrPort("[::1]:8520")
		if isAddress(cell, v4) && isAddress(cell, v6) {
			t.Errorf("%q is both", cell)
		}
	})
}

package web

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// localOnly refuses requests that name a host other than this one. A page of a
// stranger, open in a browser on this host, can point its own name at
// 127.0.0.1 (DNS rebinding); the browser then takes the answers for the page's
// own, but it still sends the page's name.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !localHost(r.Host) {
			http.Error(w, "jorc listens on a loopback address and answers to localhost and IP addresses only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// localHost tells whether the value of a Host header is localhost, a name below
// it, or an IP address. Clients of HTTP/1.0, which no browser is, send none.
func localHost(host string) bool {
	if host == "" {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// loopback tells whether only this host can reach a.
func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

package web

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// localOnly refuses requests whose Host header names another host. A foreign web
// page, open in a browser on this host, can point its own name at 127.0.0.1 (DNS
// rebinding). The browser then treats the answers as same-origin, but it still
// sends the page's name.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !localHost(r.Host) {
			http.Error(w, "jorc listens on a loopback address and answers to localhost and IP addresses only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// localHost reports whether the value of a Host header is localhost, a name below
// it, or an IP address. It accepts an empty value: HTTP/1.0 clients, which browsers
// are not, send none.
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

// loopback reports whether a is reachable only from this host.
func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

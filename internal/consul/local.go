package consul

import (
	"net"
	"net/http"
)

// plainAnswers keeps Consul from compressing its answer. Within a host that
// saves no time: it takes Consul as long again as a small answer itself, and
// longer than to write a large one.
func plainAnswers(r *http.Request) { r.Header.Set("Accept-Encoding", "identity") }

// sameHost tells whether both ends of conn are on this host.
func sameHost(conn net.Conn) bool {
	near, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return conn.LocalAddr().Network() == "unix"
	}
	far, ok := conn.RemoteAddr().(*net.TCPAddr)
	return ok && (far.IP.IsLoopback() || far.IP.Equal(near.IP))
}

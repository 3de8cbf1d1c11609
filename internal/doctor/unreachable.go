package doctor

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/jorc/jorc/internal/consul"
)

// unreachable is the error that Consul did not answer at an address: why, and what
// to do.
type unreachable struct {
	address string
	err     error
}

func (u *unreachable) Error() string {
	return fmt.Sprintf("Consul could not be reached at %s: %s; %s", u.address, why(u.err), remedyFor(u.err))
}

func (u *unreachable) Unwrap() error { return consul.ErrUnreachable }

// Explain adds the remedy to an error of a client of the agent at address; the
// class of the error stays the same.
func Explain(address string, err error) error {
	switch {
	case errors.Is(err, consul.ErrUnreachable):
		return &unreachable{address, err}
	case unknownToken(err):
		return fmt.Errorf("%w; %s", err, remedyFor(err))
	}
	return err
}

// why returns the error text of the transport or of Consul, without the request.
func why(err error) string {
	var (
		known  *consul.Error
		quiet  *timeoutError
		op     *net.OpError
		number syscall.Errno
	)
	switch {
	case errors.As(err, &quiet):
		return quiet.Error()
	case errors.As(err, &op) && errors.As(op, &number):
		return number.Error()
	case errors.As(err, &known):
		return firstLine(known.Err.Error())
	}
	return firstLine(err.Error())
}

// remedies maps error texts of transports and Consul to hints.
var remedies = []struct{ text, remedy string }{
	{"http_max_conns_per_client", "'ss -tnp' on this host lists the programs that have them"},
	{"HTTP request to an HTTPS server", "put https:// before the address (--http-addr, CONSUL_HTTP_ADDR)"},
	{"HTTP response to HTTPS client", "put http:// before the address, or unset CONSUL_HTTP_SSL"},
	{"certificate signed by unknown authority", "name Consul's CA with --ca-file (CONSUL_CACERT)"},
	{"x509:", "check --ca-file and the name in the certificate (CONSUL_TLS_SERVER_NAME)"},
	{"tls: certificate required", "give --client-cert and --client-key"},
	{"bad certificate", "check --client-cert and --client-key"},
	{"no such host", "check the address (--http-addr, CONSUL_HTTP_ADDR)"},
	{"No known Consul servers", "this agent has joined no server: check its retry_join and the network"},
	{"No cluster leader", "the servers have no leader: see that most of them run and reach each other"},
	{"no answer within", "see whether the agent hangs or a firewall drops the connection"},
	{"ACL system must be bootstrapped", "the servers have no ACLs: wait while they start, or run 'consul acl bootstrap' in a new cluster"},
	{"ACL not found", "the token is not known: put a valid one into --token-file"},
	{"token file", "check --token-file (CONSUL_HTTP_TOKEN_FILE)"},
	{"auth file", "check consul { auth_file }"},
}

// remedyFor returns what to do about an error of a Consul client.
func remedyFor(err error) string {
	for _, r := range remedies {
		if strings.Contains(err.Error(), r.text) {
			return r.remedy
		}
	}
	return "start the Consul agent, or set its address with --http-addr (CONSUL_HTTP_ADDR)"
}

// unknownToken reports whether err means that Consul does not know the token, or no
// longer knows it, or that the token cannot be read; otherwise the token lacks a right.
func unknownToken(err error) bool {
	return errors.Is(err, consul.ErrDenied) &&
		(strings.Contains(err.Error(), "ACL not found") || strings.Contains(err.Error(), "token file"))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.TrimRight(line, " \r")
}

// Package expiry finds out until when the certificates and tokens are valid on which a host
// relies. What ends unnoticed cuts the host off.
package expiry

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
)

// Kinds of what ends.
const (
	Certificate = "certificate"
	Token       = "token"
)

// Item is one certificate or token that ends.
type Item struct {
	Kind    string
	Name    string    // the setting that names it, or the template that renders it
	From    time.Time // since when it is valid; zero: not known
	Until   time.Time // zero: it could not be read
	Renewed bool      // another program renews it when two thirds of its life are over, or soon after
	Err     error     // why it could not be read
}

// SoonAt returns when an operator has to act: when a third of its life is left, and when a
// quarter is, if it is renewed: renewing it has failed then. It is zero if the end is not known.
func (i Item) SoonAt() time.Time {
	if i.Until.IsZero() {
		return time.Time{}
	}
	part := time.Duration(3)
	if i.Renewed {
		part = 4
	}
	return i.Until.Add(-i.Until.Sub(i.From) / part)
}

// Soon reports whether an operator has to act, see SoonAt.
func (i Item) Soon(now time.Time) bool { return !i.Until.IsZero() && now.After(i.SoonAt()) }

// Ended reports whether it is no longer valid.
func (i Item) Ended(now time.Time) bool { return !i.Until.IsZero() && !now.Before(i.Until) }

// maxFile bounds what is read of a file, in bytes: bundles of all authorities are smaller.
const maxFile = 4 << 20

// Reader reads certificates, each again only after its file has changed. The zero value is
// ready; its methods may be called at the same time.
type Reader struct {
	mu    sync.Mutex
	known map[source]known
}

// source is a file or directory with certificates.
type source struct {
	name, path string
	authority  bool
}

type known struct {
	info durable.Info
	item Item
}

// Certificates returns those of a configuration: Consul's, Vault's and those of the
// dashboard. Of the listed certificates of a client or server, which form a chain, the one that ends first
// counts; of authorities, of which any suffices, the one that ends last.
func (r *Reader) Certificates(c *config.Config) []Item {
	sources := []source{
		{"consul.ca_file", c.Consul.CAFile, true},
		{"consul.ca_path", c.Consul.CAPath, true},
		{"consul.client_cert", c.Consul.ClientCert, false},
		{"vault.ca_file", c.Vault.CAFile, true},
	}
	if c.UI != nil {
		sources = append(sources, source{"ui.tls.cert_file", c.UI.TLS.CertFile, false}, source{"ui.tls.client_ca_file", c.UI.TLS.ClientCAFile, true})
	}
	var all []Item
	for _, f := range sources {
		if f.path != "" {
			i := r.item(f)
			i.Kind, i.Name = Certificate, f.name
			all = append(all, i)
		}
	}
	return all
}

// ErrNone: a file has no certificate in PEM.
var ErrNone = errors.New("no certificate in PEM")

// InFile returns the certificate of a file, of several the one that ends first. Its Err is
// ErrNone if the file has no certificate.
func (r *Reader) InFile(name, path string) Item {
	i := r.item(source{name: name, path: path})
	i.Kind, i.Name = Certificate, name
	return i
}

func (r *Reader) item(f source) (i Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, err := os.Stat(f.path)
	file := err == nil && found.Mode().IsRegular()
	if file {
		if k, ok := r.known[f]; ok && k.info == durable.InfoOf(found) {
			return k.item
		}
	}
	i.From, i.Until, i.Err = read(f.path, f.authority)
	if file {
		if r.known == nil {
			r.known = map[source]known{}
		}
		r.known[f] = known{durable.InfoOf(found), i}
	}
	return i
}

// read reads a file, or all files of a directory.
func read(path string, last bool) (from, until time.Time, err error) {
	files := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*")); err != nil {
			return from, until, err
		}
	}
	for _, file := range files {
		data, err := durable.ReadFile(file, maxFile)
		if err != nil {
			return from, until, err
		}
		f, u, err := Validity(data, last)
		if errors.Is(err, ErrNone) && file != path {
			continue // a directory has other files, too
		}
		if err != nil {
			return from, until, fmt.Errorf("%s: %w", file, err)
		}
		if until.IsZero() || u.After(until) {
			from, until = f, u
		}
	}
	if until.IsZero() {
		return from, until, fmt.Errorf("%s: %w", path, ErrNone)
	}
	return from, until, nil
}

// Validity returns the validity of that certificate in a PEM text which ends first, or last.
func Validity(text []byte, last bool) (from, until time.Time, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(bytes.Clone(block.Bytes))
		if err != nil {
			return from, until, err
		}
		if until.IsZero() || c.NotAfter.After(until) == last {
			from, until = c.NotBefore, c.NotAfter
		}
	}
	if until.IsZero() {
		return from, until, ErrNone
	}
	return from, until, nil
}

// OfToken returns the end of Consul's token of this host; nil if it does not expire.
func OfToken(created, expires time.Time) *Item {
	if expires.IsZero() {
		return nil
	}
	return &Item{Kind: Token, Name: "consul.token", From: created, Until: expires}
}

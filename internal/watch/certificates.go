package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/expiry"
)

// Certificates returns until when the certificates are valid that templates got with pkiCert, one
// for each of these templates. The one in the template's file counts, because programs use that,
// also while a newer one may not be written; where the file has none, the one that the
// template was rendered with. Of several the one that ends first counts.
func (e *Engine) Certificates(files *expiry.Reader) (all []expiry.Item) {
	type rendered struct {
		name, file string
		texts      []string
	}
	var found []rendered
	e.mu.Lock()
	for _, p := range e.statuses {
		var texts []string
		for _, d := range p.used {
			if _, ok := d.made.(*dep.VaultPKIQuery); !ok {
				continue
			}
			if c, ok := e.store.get(d.id).value.(dep.PemEncoded); ok {
				texts = append(texts, c.Cert)
			}
		}
		if len(texts) > 0 {
			found = append(found, rendered{"template." + p.Name, p.Destination, texts})
		}
	}
	e.mu.Unlock()
	for _, f := range found {
		i := files.InFile(f.name, f.file)
		switch {
		case errors.Is(i.Err, expiry.ErrNone):
			i = firstOf(f.name, f.texts)
		case errors.Is(i.Err, fs.ErrNotExist): // it is not rendered yet, as the template's state says
			continue
		}
		all = append(all, i)
	}
	return all
}

// firstOf returns that one of certificates in PEM which ends first.
func firstOf(name string, texts []string) expiry.Item {
	i := expiry.Item{Kind: expiry.Certificate, Name: name}
	for _, text := range texts {
		from, until, err := expiry.Validity([]byte(text), false)
		if err != nil {
			i.Err = err
			return i
		}
		if i.Until.IsZero() || until.Before(i.Until) {
			i.From, i.Until = from, until
		}
	}
	return i
}

// VaultToken asks Vault until when its token is valid; nil: it does not end. With a renewal
// the token's life begins again.
func VaultToken(ctx context.Context, c config.Consul, v config.Vault) (*expiry.Item, error) {
	f := foreignSource{consul: c, vault: v} // with the token as its file has it now
	defer f.reset()
	clients, err := f.get(true)
	if err != nil {
		return nil, err
	}
	secret, err := clients.Vault().Auth().Token().LookupSelfWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("look up Vault's token: %w", withoutURL(err))
	}
	if secret == nil {
		return nil, errors.New("look up Vault's token: an empty answer")
	}
	text, ok := secret.Data["expire_time"].(string)
	if !ok {
		return nil, nil
	}
	i := expiry.Item{Kind: expiry.Token, Name: "vault.token"}
	i.Renewed, _ = secret.Data["renewable"].(bool)
	if i.Until, err = time.Parse(time.RFC3339, text); err != nil {
		return nil, errors.New("look up Vault's token: its expire_time is not a time")
	}
	for _, name := range []string{"creation_time", "last_renewal_time"} { // the later one is last
		if n, ok := secret.Data[name].(json.Number); ok {
			if at, err := n.Int64(); err == nil && at > 0 {
				i.From = time.Unix(at, 0)
			}
		}
	}
	return &i, nil
}

package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"
	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/filewatch"
)

// foreignSource fetches what only consul-template's own code can: Vault's
// secrets with their leases, and peerings, partitions and exported services.
// That code takes no context; each fetch runs in a goroutine that Stop ends.
type foreignSource struct {
	consul config.Consul
	vault  config.Vault

	mu      sync.Mutex
	clients *dep.ClientSet
	token   string             // of Vault, as its file had it last; empty: it was not read yet
	same    context.Context    // ends when the token is exchanged; nil: nothing waits for that
	end     context.CancelFunc // of same
}

// When a secret of Vault is read again: a certificate of pkiCert, or a secret whose lease cannot be
// renewed, after this share of its life, and one without a lease as if it had one of this time, so after 5
// minutes. consul-template uses nine tenths, and 5 minutes. A certificate of which a third is left
// (expiry.Item) is one that could not be renewed.
const (
	secretWithoutLease = 500 * time.Second
	leaseShare         = 0.6
)

var errNoVault = errors.New("no Vault is configured: set vault { address }")

// get returns the clients, made at first use and again after reset.
func (f *foreignSource) get(vault bool) (*dep.ClientSet, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if vault && f.vault.Address == "" {
		return nil, errNoVault
	}
	if f.clients != nil {
		return f.clients, nil
	}
	// When its code reads a secret again; without these, it never pauses.
	dep.SetVaultDefaultLeaseDuration(secretWithoutLease)
	dep.SetVaultLeaseRenewalThreshold(leaseShare)
	set := dep.NewClientSet()
	token, err := fileSecret("token", f.consul.TokenFile, string(f.consul.Token))
	if err != nil {
		return nil, err
	}
	auth, err := fileSecret("auth", f.consul.AuthFile, string(f.consul.Auth))
	if err != nil {
		return nil, err
	}
	user, password, _ := strings.Cut(auth, ":")
	address, https := strings.CutPrefix(f.consul.Address, "https://")
	err = set.CreateConsulClient(&dep.CreateConsulClientInput{
		Address: strings.TrimPrefix(address, "http://"), Token: token, SSLEnabled: https,
		AuthEnabled: auth != "", AuthUsername: user, AuthPassword: password,
		SSLVerify: !f.consul.TLSSkipVerify, SSLCert: f.consul.ClientCert, SSLKey: f.consul.ClientKey,
		SSLCACert: f.consul.CAFile, SSLCAPath: f.consul.CAPath, ServerName: f.consul.TLSServerName,
		TransportMaxIdleConns: 2,
	})
	if err != nil {
		return nil, fmt.Errorf("client for peerings: %w", err)
	}
	if f.vault.Address != "" {
		token, err := fileSecret("token", f.vault.TokenFile, os.Getenv("VAULT_TOKEN"))
		if err != nil {
			return nil, err
		}
		f.use(token)
		err = set.CreateVaultClient(&dep.CreateVaultClientInput{
			Address: f.vault.Address, Namespace: f.vault.Namespace, Token: token,
			SSLEnabled: strings.HasPrefix(f.vault.Address, "https://"), SSLVerify: true, SSLCACert: f.vault.CAFile,
		})
		if err != nil {
			return nil, fmt.Errorf("client for Vault: %w", withoutURL(err))
		}
	}
	f.clients = set
	return set, nil
}

// reset makes the next get read tokens again.
func (f *foreignSource) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget()
}

// forget ends the clients. The caller holds mu.
func (f *foreignSource) forget() {
	if f.clients != nil {
		f.clients.Stop()
		f.clients = nil
	}
}

// use takes in Vault's token. For another one than before what is fetched begins again: the leases that
// the token before was given end with it. The caller holds mu.
func (f *foreignSource) use(token string) (exchanged bool) {
	before := f.token
	f.token = token
	if before == "" || before == token {
		return false
	}
	f.forget()
	if f.end != nil {
		f.end()
		f.same, f.end = nil, nil
	}
	return true
}

// sameToken returns a context that ends with ctx, or when Vault's token is exchanged. The caller must call stop.
func (f *foreignSource) sameToken(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.same == nil {
		f.same, f.end = context.WithCancel(context.Background())
	}
	detach := context.AfterFunc(f.same, cancel)
	return ctx, func() {
		detach()
		cancel()
	}
}

// followToken notices that the file of Vault's token has another one, until ctx ends.
func (f *foreignSource) followToken(ctx context.Context, log hclog.Logger) {
	filewatch.Watch(ctx, f.vault.TokenFile, func(context.Context) {
		token, err := fileSecret("token", f.vault.TokenFile, "")
		if err != nil || token == "" {
			return // it is about to be written; if it stays so, what is fetched next fails for it
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.use(token) {
			log.Info("Vault's token was exchanged: its secrets are read again")
		}
	}, log)
}

// renew renews the lease of a secret of Vault. It reports false for another value, one without a lease
// that can be renewed, and any failure, which the next fetch finds, too.
func (f *foreignSource) renew(ctx context.Context, value any) bool {
	secret, ok := value.(*dep.Secret)
	if !ok || secret.LeaseID == "" || !secret.Renewable {
		return false
	}
	clients, err := f.get(true)
	if err != nil {
		return false
	}
	_, err = clients.Vault().Sys().RenewWithContext(ctx, secret.LeaseID, 0)
	return err == nil
}

// fileSecret returns what is in file, or fixed without a file. what is for errors.
func fileSecret(what, file, fixed string) (string, error) {
	if file == "" {
		return fixed, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s file: %w", what, err)
	}
	return strings.TrimSpace(string(data)), nil
}

// watchForeign fetches d until ctx ends, and from the beginning when Vault's token is exchanged.
func (s *sources) watchForeign(ctx context.Context, d *dependency) {
	for ctx.Err() == nil {
		same, stop := s.foreign.sameToken(ctx)
		s.followForeign(same, d)
		stop()
	}
}

// followForeign fetches d again as often as its code returns, which blocks or
// waits for a lease by itself, and retries failures with a growing pause, until ctx ends. That
// code takes no context: what it waits for when ctx ends is left behind.
func (s *sources) followForeign(ctx context.Context, d *dependency) {
	query, err := d.foreign()
	if err != nil { // it succeeded when the template was executed
		s.send(ctx, []change{{id: d.id, err: err, at: time.Now()}})
		<-ctx.Done()
		return
	}
	stop := context.AfterFunc(ctx, query.Stop)
	defer stop()
	opts := dep.QueryOptions{WaitTime: foreignWait}
	backoff := concurrency.NewBackoff(time.Second, time.Minute)
	var last foreignAnswer // without an error
	for {
		fetched := make(chan foreignAnswer, 1)
		go func() { fetched <- s.fetchForeign(query, d.vault, opts) }()
		var a foreignAnswer
		select {
		case <-ctx.Done():
			return
		case a = <-fetched:
		}
		if errors.Is(a.err, dep.ErrStopped) {
			return
		}
		s.send(ctx, []change{{id: d.id, value: a.value, err: a.err, at: time.Now()}})
		if a.err == nil {
			opts.WaitIndex = a.index
			backoff.Reset()
			last = a
			continue
		}
		opts.WaitIndex = 0
		s.foreign.reset()
		if backoff.Wait(ctx) != nil {
			return
		}
		// Fetch renews a lease that outlived the outage, and does not return while that succeeds.
		if s.foreign.renew(ctx, last.value) {
			s.send(ctx, []change{{id: d.id, value: last.value, at: time.Now()}})
			backoff.Reset()
		}
	}
}

// foreignWait bounds what is left behind.
const foreignWait = time.Minute

type foreignAnswer struct {
	value any
	index uint64
	err   error
}

func (s *sources) fetchForeign(query dep.Dependency, vault bool, opts dep.QueryOptions) foreignAnswer {
	clients, err := s.foreign.get(vault)
	if err != nil {
		return foreignAnswer{err: err}
	}
	value, meta, err := query.Fetch(clients, &opts)
	if err != nil {
		return foreignAnswer{err: withoutURL(err)}
	}
	return foreignAnswer{value: asNow(value), index: meta.LastIndex}
}

// asNow returns a secret as it is now: consul-template's code writes to its own while it renews the lease. Other values
// are as they were.
func asNow(value any) any {
	s, ok := value.(*dep.Secret)
	if !ok || s == nil {
		return value
	}
	now := *s
	if s.Auth != nil {
		auth := *s.Auth
		now.Auth = &auth
	}
	if s.WrapInfo != nil {
		wrap := *s.WrapInfo
		now.WrapInfo = &wrap
	}
	return &now
}

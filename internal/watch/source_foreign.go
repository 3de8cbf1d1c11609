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

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
)

// foreignSource fetches what only consul-template's own code can: Vault's
// secrets with their leases, and peerings, partitions and exported services.
// That code takes no context; each fetch runs in a goroutine that Stop ends.
type foreignSource struct {
	consul config.Consul
	vault  config.Vault

	mu      sync.Mutex
	clients *dep.ClientSet
}

// When a secret of Vault is read again: one without a lease after this time, as
// consul-template does by default, and a certificate of pkiCert, or one whose lease cannot be
// renewed, after this share of its life. consul-template uses nine tenths of it. A certificate
// of which a third is left (expiry.Item) is one that could not be renewed.
const (
	secretWithoutLease = 5 * time.Minute
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
	if f.clients != nil {
		f.clients.Stop()
		f.clients = nil
	}
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

// watchForeign fetches d again as often as its code returns, which blocks or
// waits for a lease by itself, and retries failures with a growing pause. That
// code takes no context: what it waits for when ctx ends is left behind.
func (s *sources) watchForeign(ctx context.Context, d *dependency) {
	stop := context.AfterFunc(ctx, d.foreign.Stop)
	defer stop()
	opts := dep.QueryOptions{WaitTime: foreignWait}
	backoff := concurrency.NewBackoff(time.Second, time.Minute)
	var last foreignAnswer // without an error
	for {
		fetched := make(chan foreignAnswer, 1)
		go func() { fetched <- s.fetchForeign(d, opts) }()
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

func (s *sources) fetchForeign(d *dependency, opts dep.QueryOptions) foreignAnswer {
	clients, err := s.foreign.get(d.vault)
	if err != nil {
		return foreignAnswer{err: err}
	}
	value, meta, err := d.foreign.Fetch(clients, &opts)
	if err != nil {
		return foreignAnswer{err: withoutURL(err)}
	}
	return foreignAnswer{value: value, index: meta.LastIndex}
}

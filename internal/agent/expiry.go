package agent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/expiry"
	"github.com/jorc/jorc/internal/filewatch"
	"github.com/jorc/jorc/internal/watch"
	"github.com/jorc/jorc/internal/web"
)

// When it is asked again until when a token is valid: neither Consul nor Vault says by itself
// that a token was renewed.
const (
	tokenEvery = time.Hour   // while enough of its life is left
	tokenSoon  = time.Minute // when an operator has to act, or nothing answered
	tokenLimit = 30 * time.Second
)

// expiring knows when what this agent relies on ends.
type expiring struct {
	certificates expiry.Reader
	changed      concurrency.Signal // the end of a token

	mu     sync.Mutex
	tokens map[string]*expiry.Item // by whose they are; nil: it does not expire
}

// watchToken keeps the end of Consul's token current until ctx ends.
func (a *Agent) watchToken(ctx context.Context) error {
	a.mu.Lock()
	file := a.conf.Consul.TokenFile
	a.mu.Unlock()
	a.followToken(ctx, "consul", file, func(ctx context.Context) (*expiry.Item, error) {
		token, err := a.client.OwnToken(ctx)
		if consul.ACLsDisabled(err) {
			return nil, nil
		}
		return expiry.OfToken(token.CreateTime, token.ExpirationTime), err
	})
	return nil
}

// watchVaultToken keeps the end of the token of the configured Vault current until ctx ends.
func (a *Agent) watchVaultToken(ctx context.Context) error {
	for c := a.generation().conf; ctx.Err() == nil; {
		following, stop := context.WithCancel(ctx)
		var followed sync.WaitGroup
		followed.Go(func() {
			if c.Vault.Address == "" {
				a.expiring.setToken("vault", nil)
				return
			}
			a.followToken(following, "vault", c.Vault.TokenFile, func(ctx context.Context) (*expiry.Item, error) {
				return watch.VaultToken(ctx, c.Consul, c.Vault)
			})
		})
		next, err := a.nextConfig.Wait(ctx, func(next *config.Config) bool { return next.Vault != c.Vault })
		stop()
		followed.Wait()
		if err == nil {
			c = next
		}
	}
	return nil
}

// followToken keeps the end of a token current until ctx ends. It asks again when file has changed.
func (a *Agent) followToken(ctx context.Context, of, file string, ask func(context.Context) (*expiry.Item, error)) {
	changed := concurrency.NewSignal()
	var watching sync.WaitGroup
	defer watching.Wait()
	if file != "" {
		watching.Go(func() { filewatch.Watch(ctx, file, func(context.Context) { changed.Notify() }, a.o.Log) })
	}
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, tokenLimit)
		i, err := ask(limited)
		cancel()
		pause := tokenSoon
		switch {
		case err != nil:
			a.o.Log.Debug("when a token expires is not known", "of", of, "error", err)
		default:
			a.expiring.setToken(of, i)
			pause = tokenEvery
			if i != nil {
				pause = max(tokenSoon, min(tokenEvery, time.Until(i.SoonAt())))
			}
		}
		_ = concurrency.SleepUnless(ctx, changed.C(), pause) // the loop's condition notices ctx's end
	}
}

func (e *expiring) setToken(of string, i *expiry.Item) {
	e.mu.Lock()
	if e.tokens == nil {
		e.tokens = map[string]*expiry.Item{}
	}
	e.tokens[of] = i
	e.mu.Unlock()
	e.changed.Notify()
}

// items are the ends of certificates and tokens on which a configuration relies.
func (e *expiring) items(c *config.Config, templates *watch.Engine) []expiry.Item {
	all := slices.Concat(e.certificates.Certificates(c), templates.Certificates(&e.certificates))
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, of := range slices.Sorted(maps.Keys(e.tokens)) {
		if i := e.tokens[of]; i != nil {
			all = append(all, *i)
		}
	}
	return all
}

func expiryViews(all []expiry.Item, now time.Time) (views []web.Expiry) {
	for _, i := range all {
		v := web.Expiry{Kind: i.Kind, Name: i.Name, From: i.From, Until: i.Until, Renewed: i.Renewed, Soon: i.Soon(now)}
		if i.Err != nil {
			v.Error = i.Err.Error()
		}
		views = append(views, v)
	}
	return views
}

// reportExpiring keeps what ends soon, has ended or cannot be read in the host's report until
// ctx ends.
func (p *part) reportExpiring(ctx context.Context) error {
	for ctx.Err() == nil {
		all, next := endsSoon(p.expiring(), time.Now())
		_ = concurrency.Retry(ctx, concurrency.NewBackoff(firstReport, lastReport), func(ctx context.Context) error {
			_, err := p.report.Change(ctx, func(d cluster.Report) (cluster.Report, error) { return d.WithExpiring(all), nil })
			return err
		}, func(err error, _ time.Duration) {
			p.log.Warn("cannot report certificates and tokens that end, will retry", "error", err)
		})
		_ = concurrency.SleepUnless(ctx, p.expiringChanged.C(), next) // the loop's condition notices ctx's end
	}
	return nil
}

// Pauses before what ends is read again: files are read again only when they have changed.
const (
	expiryEvery = 10 * time.Minute
	expirySoon  = 10 * time.Second // while something is reported: an operator who replaced it looks for that
)

// endsSoon returns what of all an operator has to replace, and when to look again.
func endsSoon(all []expiry.Item, now time.Time) (list []cluster.Expiring, next time.Duration) {
	next = expiryEvery
	for _, i := range all {
		if i.Err == nil && !i.Soon(now) {
			next = min(next, max(expirySoon, i.SoonAt().Sub(now)))
			continue
		}
		list, next = append(list, cluster.Expiring{Kind: i.Kind, Name: i.Name, Until: i.Until}), expirySoon
	}
	return list, next
}

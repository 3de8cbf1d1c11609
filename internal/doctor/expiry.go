package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/expiry"
	"github.com/jorc/jorc/internal/watch"
)

// expiry checks until when certificates and tokens are valid. It finds nothing where
// nothing ends. Certificates that templates render are known to the agent alone.
func (e *examination) expiry(ctx context.Context) (found []Finding) {
	all := new(expiry.Reader).Certificates(e.Config)
	// That Consul does not answer, or knows no tokens, is found by other checks.
	if t, err := bounded(ctx, e.Timeout, e.client.OwnToken); err == nil {
		if i := expiry.OfToken(t.CreateTime, t.ExpirationTime); i != nil {
			all = append(all, *i)
		}
	}
	var unknown error
	if e.Config.Vault.Address != "" {
		i, err := bounded(ctx, e.Timeout, func(ctx context.Context) (*expiry.Item, error) {
			return watch.VaultToken(ctx, e.Config.Consul, e.Config.Vault)
		})
		if unknown = err; i != nil {
			all = append(all, *i)
		}
	}
	all = append(all, e.expiryOfAgent(ctx, all)...)
	now := time.Now()
	for _, i := range all {
		found = append(found, classifyExpiry(i, now))
	}
	if unknown != nil && !slices.ContainsFunc(all, func(i expiry.Item) bool { return i.Name == "vault.token" }) {
		found = append(found, Finding{Check: "expiry", Status: Warn, Detail: unknown.Error(), Remedy: "see vault { } in the configuration, and whether Vault answers"})
	}
	return found
}

// expiryOfAgent returns what the running agent knows beside known; nothing without an agent.
func (e *examination) expiryOfAgent(ctx context.Context, known []expiry.Item) (all []expiry.Item) {
	if e.NoAgent != "" || e.Config.HTTP.Addr == "" {
		return nil
	}
	if holder, err := e.holder(); err != nil || holder == "" {
		return nil // no agent runs, and what answers there is another one
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	for _, v := range askStatus(ctx, e.Config.HTTP).Expiry {
		if slices.ContainsFunc(known, func(i expiry.Item) bool { return i.Name == v.Name }) {
			continue
		}
		i := expiry.Item{Kind: v.Kind, Name: v.Name, From: v.From, Until: v.Until, Renewed: v.Renewed}
		if v.Error != "" {
			i.Err = errors.New(v.Error)
		}
		all = append(all, i)
	}
	return all
}

func classifyExpiry(i expiry.Item, now time.Time) Finding {
	f := Finding{Check: "expiry", Remedy: "replace it"}
	until := i.Until.UTC().Format("2006-01-02 15:04 MST")
	left := "a third"
	if i.Renewed {
		left, f.Remedy = "a quarter", "see why it was not renewed, or replace it"
	}
	switch {
	case i.Err != nil:
		f.Status, f.Detail = Fail, fmt.Sprintf("%s: %v", i.Name, i.Err)
		f.Remedy = "correct the setting or the file"
	case i.Ended(now):
		f.Status, f.Detail = Fail, fmt.Sprintf("%s %s ended at %s", i.Kind, i.Name, until)
	case i.Soon(now):
		f.Status, f.Detail = Warn, fmt.Sprintf("%s %s ends at %s: less than %s of its life is left", i.Kind, i.Name, until, left)
	default:
		f.Status, f.Detail, f.Remedy = OK, fmt.Sprintf("%s %s is valid until %s", i.Kind, i.Name, until), ""
	}
	return f
}

package workflow

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// ConsulSource returns the source of a trigger on a service, a key or a prefix. The
// items of a service are its functional instances, which have no critical check.
// It logs a warning if the token may not read all items.
func ConsulSource(client *consul.Client, t config.Trigger, log hclog.Logger) TriggerSource {
	log = log.With("trigger", t.Name)
	switch triggerKind(t) {
	case "service":
		return watchOf[[]*consul.ServiceEntry]{log, client, func(ctx context.Context, q consul.Query) ([]*consul.ServiceEntry, consul.Meta, error) {
			return client.HealthService(ctx, t.Service, "", false, q)
		}, instances}
	case "key":
		return watchOf[*consul.KVPair]{log, client, func(ctx context.Context, q consul.Query) (*consul.KVPair, consul.Meta, error) {
			return client.KVGet(ctx, t.Key, q)
		}, func(p *consul.KVPair) map[string]Item {
			if p == nil {
				return nil
			}
			return pairs(consul.KVPairs{p})
		}}
	}
	return watchOf[consul.KVPairs]{log, client, func(ctx context.Context, q consul.Query) (consul.KVPairs, consul.Meta, error) {
		return client.KVList(ctx, t.Prefix, q)
	}, pairs}
}

// watchOf converts the answers of a blocking query to items.
type watchOf[T any] struct {
	log    hclog.Logger
	client *consul.Client
	ask    consul.Source[T]
	items  func(T) map[string]Item
}

// Watch implements TriggerSource.
func (w watchOf[T]) Watch(ctx context.Context, observe func(Observation)) error {
	warned := false
	return consul.Watch(ctx, w.client, consul.Query{}, w.ask, func(u consul.Update[T]) {
		switch {
		case u.Err != nil:
		case u.Meta.Filtered: // items that the token may not read are not removed
			if !warned {
				w.log.Warn("trigger paused: the token lacks rights to read everything that it watches")
			}
			warned = true
		default:
			warned = false
			observe(Observation{Items: w.items(u.Value)})
		}
	})
}

func instances(list []*consul.ServiceEntry) map[string]Item {
	items := map[string]Item{}
	for _, e := range list {
		if e.Checks.AggregatedStatus() == consul.HealthCritical || e.Checks.AggregatedStatus() == consul.HealthMaint {
			continue
		}
		address := e.Service.Address
		if address == "" {
			address = e.Node.Address
		}
		items[e.Node.Node+"/"+e.Service.ID] = encode(struct {
			Node    string            `json:"node"`
			ID      string            `json:"id"`
			Address string            `json:"address"`
			Port    int               `json:"port"`
			Tags    []string          `json:"tags"`
			Meta    map[string]string `json:"meta"`
		}{e.Node.Node, e.Service.ID, address, e.Service.Port, e.Service.Tags, e.Service.Meta})
	}
	return items
}

func pairs(list consul.KVPairs) map[string]Item {
	items := make(map[string]Item, len(list))
	for _, p := range list {
		if utf8.Valid(p.Value) {
			items[p.Key] = encode(string(p.Value))
		} else {
			items[p.Key] = encode(map[string]string{"base64": base64.StdEncoding.EncodeToString(p.Value)})
		}
	}
	return items
}

// encode returns v as JSON. All values that it gets can be encoded.
func encode(v any) Item {
	data, err := json.Marshal(v)
	if err != nil {
		return Item("null")
	}
	return data
}

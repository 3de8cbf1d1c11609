package catalog

import (
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// presenceEvery is how often jorc says that it is there.
const presenceEvery = 10 * time.Second

// PresenceName is the name of jorc's own service.
const PresenceName = "jorc"

// presenceOutput is the output of its check: always the same.
const presenceOutput = "jorc agent is running"

// PresenceID is the id of jorc's own service of a cluster; its name is "jorc".
// Its check shows a dead jorc beside a living Consul, and nobody else's health
// depends on it.
func PresenceID(cluster string) string {
	if cluster == "" || cluster == "default" {
		return PresenceName
	}
	return PresenceName + "-" + cluster
}

func (r *Registrar) presence() *registration {
	w := newRegistration(config.Service{
		Name: PresenceName, ID: PresenceID(r.o.Cluster), OnStop: r.presenceOnStop(),
		Checks: []config.Check{{Name: "jorc agent", TTL: max(r.leastTTL, 3*r.presenceEvery)}},
	}, r.o.Owner, r.leastTTL)
	w.presence = true
	w.checks[0].kind = kindPresence
	w.checks[0].initial = consul.HealthPassing // who registers it is there
	w.checks[0].interval = r.presenceEvery
	return w
}

// presenceOnStop: a jorc that was stopped shows as critical once its TTL is
// over; maintenance would hide that.
func (r *Registrar) presenceOnStop() string {
	if r.o.OnStop == OnStopDeregister {
		return OnStopDeregister
	}
	return OnStopKeep
}

package web

import (
	"fmt"
	"strings"
)

// maxReasons bounds how many reasons are told; the states of the services and
// templates tell the rest.
const maxReasons = 20

// tooManyFails is how many cycles of an orchestrator in a row may not fail.
const tooManyFails = 3

// notReady lists what keeps this host from being as its configuration says:
// Consul has never answered, a service is not registered, a template has not
// been rendered or failed, or it orchestrates a cluster and cannot finish cycles.
//
// It is no reason that Consul is away now (services and files stay as they
// are), that a check of a service fails (that is the service's state, not
// jorc's), or that a guard holds back part of a file (that is its purpose).
func notReady(s Status) []string {
	var reasons []string
	if s.Consul.LastAnswer.IsZero() {
		reasons = append(reasons, fmt.Sprintf("Consul at %s has not answered yet", s.Consul.Address))
	}
	for i := range s.Services {
		if service := &s.Services[i]; !service.Registered {
			reasons = append(reasons, because(fmt.Sprintf("service %q is not registered", service.ID), service.Error))
		}
	}
	for i := range s.Templates {
		switch t := &s.Templates[i]; t.State {
		case TemplateRendered, TemplateHeld:
		case TemplateFailed:
			reasons = append(reasons, because(fmt.Sprintf("template %q failed", t.Name), t.Error))
		default:
			reasons = append(reasons, because(fmt.Sprintf("template %q has not been rendered", t.Name), strings.Join(t.Waiting, "; ")))
		}
	}
	for i := range s.Orchestrators {
		if o := &s.Orchestrators[i]; o.Active && o.Fails >= tooManyFails {
			reasons = append(reasons, because(fmt.Sprintf("the orchestrator of cluster %q: the last %d cycles failed", o.Cluster, o.Fails), o.Error))
		}
	}
	if more := len(reasons) - maxReasons; more > 0 {
		reasons = append(reasons[:maxReasons], fmt.Sprintf("and %d more", more))
	}
	return reasons
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + strings.Join(strings.Fields(why), " ")
}

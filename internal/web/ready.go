package web

import (
	"fmt"
	"strings"
)

// maxReasons bounds how many reasons are listed; the status lists the state of every
// service and template.
const maxReasons = 20

// tooManyFails is how many consecutive failed cycles make an orchestrator not ready.
const tooManyFails = 3

// notReady lists why this host does not match its configuration: Consul has never
// answered, a service is not registered, a template failed or has not been rendered,
// or the host orchestrates a cluster and its cycles fail.
//
// A host stays ready while Consul is unreachable (services and files stay
// unchanged), while a service's check fails (that is the service's state, not
// jorc's), and while a guard holds back part of a file (that is its purpose).
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

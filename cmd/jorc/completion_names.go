package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/stage"
)

// nameKind is a kind of names that completion reads.
type nameKind string

const (
	noNames       nameKind = ""
	hostNames     nameKind = "hosts"
	roleNames     nameKind = "roles"
	zoneNames     nameKind = "zones"
	serviceNames  nameKind = "services"
	clusterNames  nameKind = "clusters"
	runIDs        nameKind = "runs"
	openRunIDs    nameKind = "runs in progress"
	rolloutIDs    nameKind = "finished rollouts"
	versionNames  nameKind = "versions"
	workflowNames nameKind = "workflows"     // of members, or of runs, and of this host
	ownWorkflows  nameKind = "own workflows" // defined on this host
	stagesOfHosts nameKind = "stages"
	profileIDs    nameKind = "changes of the profile"
	changeIDs     nameKind = "changes"
	openChangeIDs nameKind = "changes in progress"
)

// kindsOfPlaces are the kinds that a word of a usage line means anywhere.
var kindsOfPlaces = map[string]nameKind{
	"HOST": hostNames, "NODE": hostNames, "ROLE": roleNames, "ZONE": zoneNames, "SERVICE": serviceNames, "TARGET": serviceNames,
	"VERSION": versionNames, "WORKFLOW": workflowNames,
	"STAGE": stagesOfHosts,
}

// kindsOfCommands are the kinds that a word of one command's usage line means.
var kindsOfCommands = map[string]nameKind{
	"jorc cluster show NAME": clusterNames, "jorc cluster export NAME": clusterNames, "jorc cluster delete NAME": clusterNames,
	"jorc cluster runs ID": runIDs, "jorc cluster run RUN": runIDs, "jorc cluster logs ID": runIDs, "jorc cluster approve ID": openRunIDs, "jorc cluster cancel ID": openRunIDs,
	"jorc change show ID": changeIDs, "jorc change wait ID": openChangeIDs, "jorc change pause ID": openChangeIDs, "jorc change resume ID": openChangeIDs,
	"jorc change approve ID": openChangeIDs, "jorc change cancel ID": openChangeIDs, "jorc change retry ID": changeIDs, "jorc change history ID": changeIDs, "jorc change logs ID": changeIDs,
	"jorc cluster profile revert ID": profileIDs, "jorc update history ID": rolloutIDs, "jorc cluster wait ID": runIDs, "jorc service resolve NAME": serviceNames, "jorc workflow run NAME": ownWorkflows,
}

// kindsOfFlags are those of global flags.
var kindsOfFlags = map[string]nameKind{"cluster": clusterNames, "node": hostNames}

// nameKind is the kind of the word that comes next: the value of pending, or else an
// argument.
func (a *arranger) nameKind(pending cli.Flag) nameKind {
	place := ""
	if d, ok := pending.(cli.DocGenerationFlag); ok && pending != nil {
		if kind := kindsOfFlags[pending.Names()[0]]; kind != noNames {
			return kind
		}
		_, place, _ = strings.Cut(d.GetUsage(), "`")
		place, _, _ = strings.Cut(place, "`")
	} else if last := a.last(); last != nil {
		usage, _, _ := strings.Cut(last.ArgsUsage, "--")
		if words := strings.Fields(usage); len(words) > 0 {
			i := len(a.arguments)
			if word := words[len(words)-1]; i >= len(words) && strings.Contains(word, "…") {
				i = len(words) - 1
			}
			if i < len(words) {
				place = strings.Trim(words[i], "[]…")
			}
		}
	}
	if kind := kindsOfCommands[a.name()+" "+place]; kind != noNames {
		return kind
	}
	return kindsOfPlaces[place]
}

// completionTime bounds how long a shell waits for names: a person who presses a key
// notices more than this.
const completionTime = 300 * time.Millisecond

// names reads the names of a kind with the global flags of the command line. It
// returns none if that takes longer than completionTime or fails: a shell has no
// place for an error.
func (e *environment) names(ctx context.Context, flags []string, app *cli.App, kind nameKind) []candidate {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(e.completionTime, completionTime))
	defer cancel()
	var names []string
	app.Commands = append(app.Commands, &cli.Command{Name: completeCommand, Hidden: true, HideHelp: true, Action: func(c *cli.Context) error {
		found, err := e.readNames(c, kind)
		names = found
		return err
	}})
	if err := app.RunContext(ctx, append(append([]string{app.Name}, flags...), completeCommand)); err != nil {
		return nil
	}
	var all []candidate
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if completable(name) {
			all = append(all, candidate{word: name})
		}
	}
	return all
}

// completable reports whether a name is one word of a command line in every shell,
// without quotes: names come from others, and a shell must not expand them.
func completable(name string) bool {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.+:@=,/", r)
	}
	return name != "" && !strings.HasPrefix(name, "-") && !strings.ContainsFunc(name, func(r rune) bool { return !plain(r) })
}

func (e *environment) readNames(c *cli.Context, kind nameKind) ([]string, error) {
	if kind == ownWorkflows {
		return e.workflowsHere(c)
	}
	t, err := e.cluster(c, "")
	if err != nil {
		return nil, err
	}
	switch kind {
	case hostNames:
		return t.HostNames(c.Context)
	case roleNames:
		return t.RoleNames(c.Context)
	case zoneNames:
		return t.ZoneNames(c.Context)
	case versionNames:
		return t.VersionNames(c.Context)
	case clusterNames:
		return fleet.ClusterNames(c.Context, t.client, t.settings.Prefix)
	case serviceNames:
		services, _, err := t.client.CatalogServices(c.Context, consul.Query{})
		return slices.Collect(maps.Keys(services)), err
	case rolloutIDs:
		return t.rollouts().RecordNames(c.Context)
	case runIDs, openRunIDs:
		return t.runs().IDs(c.Context, kind == openRunIDs)
	case profileIDs:
		h, _, err := t.ProfileHistory(c.Context)
		var numbers []string
		for _, change := range h.Changes {
			numbers = append(numbers, strconv.FormatUint(change.Number, 10))
		}
		return numbers, err
	case changeIDs, openChangeIDs:
		all, err := e.changes(c, t, "", kind == changeIDs)
		var ids []string
		for _, x := range all {
			ids = append(ids, x.ID)
		}
		return ids, err
	case workflowNames:
		return e.workflows(c, t)
	case stagesOfHosts:
		return stage.Names(c.Context, t.Cluster)
	}
	return nil, errors.New("nothing is known of " + string(kind))
}

// workflowsHere are the workflows that this host's configuration defines.
func (e *environment) workflowsHere(c *cli.Context) (names []string, err error) {
	settings, err := e.config(c)
	if err != nil {
		return nil, err
	}
	for _, w := range settings.Workflows {
		names = append(names, w.Name)
	}
	return names, nil
}

// workflows are those of this host and of members. If no member's record names one, the
// workflows that runs have asked for take their place.
func (e *environment) workflows(c *cli.Context, t *target) ([]string, error) {
	names, err := e.workflowsHere(c)
	if err != nil {
		return nil, err
	}
	reported, err := t.WorkflowNames(c.Context)
	if names = append(names, reported...); len(reported) == 0 && err == nil {
		var all []runs.Run
		all, _, err = t.runs().List(c.Context)
		for _, r := range all {
			names = append(names, r.Request.Workflow)
		}
	}
	if len(names) > 0 { // those of this host need no Consul
		return names, nil
	}
	return names, err
}

package main

import (
	"context"
	"fmt"
	"strings"
)

// scenarios are all that are measured, in order.
func scenarios(s size) []scenario {
	var all []scenario
	add := func(name string, run func(context.Context, *bench) error) {
		all = append(all, scenario{name: name, run: run})
	}
	for _, n := range s.keys {
		w := keyWork(n, s)
		add(strings.ReplaceAll(w.name, " ", "-"), w.carryOut)
	}
	services := serviceWork(s.services, s)
	add(fmt.Sprintf("%d-services", s.services), services.carryOut)
	pool := poolWork(s.files, s)
	add("one-service", pool.carryOut)
	add("large-service", largeService(s.instances, s).carryOut)
	add("watchers-of-agent", watchersOfAgent)
	add("absent-keys", absentKeys)
	for _, n := range s.keys {
		if n == 100 || n == 1000 {
			add(fmt.Sprintf("start-%d-keys", n), keyWork(n, s).startUp)
		}
	}
	add("start-up", startUp)
	add("wait", waitForService)
	add("raft", raftWrites)
	return all
}

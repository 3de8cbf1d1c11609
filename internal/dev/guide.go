package dev

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Text returns the announcement of the fleet for people; env is the command whose output sets a
// shell, and jorc the one that runs the program in such a shell.
func (f Fleet) Text(env, jorc string) string {
	var b strings.Builder
	first, last := f.Hosts[0], f.Hosts[len(f.Hosts)-1]
	fmt.Fprintf(&b, "A Consul and %d hosts, each with a jorc agent, are running (pid %d). Their data and logs are in %s, %s.\n\n", len(f.Hosts), f.PID, f.Dir, fate(f.Kept))
	for _, row := range [][2]string{
		{"dashboard", f.UI},
		{"Consul's page", f.ConsulUI},
		{"hosts", fmt.Sprintf("%s (%s) to %s (%s)", first.Name, first.Address, last.Name, last.Address)},
		{"configuration", filepath.Join(f.Dir, "host-*", "config")},
		{"logs", filepath.Join(f.Dir, "host-*", "*.log")},
	} {
		fmt.Fprintf(&b, rowFormat, row[0], row[1])
	}
	fmt.Fprintf(&b, "\nIn another terminal, let the shell use this fleet:\n\n    eval \"$(%s)\"\n\nThen try, beside the dashboard:\n", env)
	writeHints(&b, f.things(jorc))
	return b.String()
}

// things are what to try.
func (f Fleet) things(jorc string) []hint {
	full := Quoted(filepath.Join(f.Hosts[1].Dir, "disk-full"))
	maintenance := func(on string) string {
		return fmt.Sprintf("curl -s -X PUT 'http://%s/v1/agent/maintenance?enable=%s'", f.Hosts[2].HTTPAddr, on)
	}
	list := []hint{
		{"1. a rollout fails on host-2, which is then repaired", []string{
			"touch " + full,
			"JORC update trigger v2 --canary 1 --max-parallel 1 --min-healthy 2s",
			"JORC update wait",
			"JORC update show",
			"rm " + full,
			"JORC update retry host-2",
			"JORC update resume",
			"JORC update wait",
		}},
		{"2. a bad value reaches one host, which takes the old one back; the others never get it", []string{
			"JORC cluster profile set workers 0",
			"until JORC stage list | grep stopped; do sleep 1; done",
			"JORC stage show pool",
			"JORC cluster profile set workers 8",
			"until JORC stage list | grep done; do sleep 1; done",
			"cat " + Quoted(f.Dir) + "/host-*/pool.conf",
		}},
		{"3. a host is held; the others continue without it", []string{
			"JORC cluster hold --node host-3 --reason 'its disk is replaced'",
			"JORC update trigger v3 --max-parallel 2",
			"JORC update wait",
			"JORC update why host-3",
			"JORC cluster unhold --node host-3",
			"JORC update wait",
		}},
		{"4. a run fails on one host, and is repeated there", []string{
			"touch " + full,
			"JORC cluster run backup --id backup-1 --wait",
			fmt.Sprintf("until JORC cluster runs | grep 'failed *%d/%d'; do sleep 1; done", len(f.Hosts)-1, len(f.Hosts)),
			"JORC cluster logs backup-1 host-2",
			"rm " + full,
			"JORC cluster run --retry-of backup-1 --wait",
		}},
		{"5. one host may be out, and one is: nothing begins until it is back", []string{
			"JORC cluster budget set --max-out 1",
			maintenance("true"),
			"until JORC cluster budget | grep host-3; do sleep 1; done",
			"JORC update trigger v4 --max-parallel 2",
			"until JORC cluster budget | grep waits; do sleep 1; done",
			maintenance("false"),
			"JORC update wait",
		}},
	}
	for _, h := range list {
		for i, c := range h.commands {
			h.commands[i] = strings.ReplaceAll(c, "JORC", jorc)
		}
	}
	return list
}

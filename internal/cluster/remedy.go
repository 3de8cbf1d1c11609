package cluster

import (
	"errors"
	"strings"

	"github.com/jorc/jorc/internal/kv"
)

// Remedy says what to do about err when it is of a damaged document of a cluster
// and does not say so itself; else it is empty.
func Remedy(err error) string {
	text := err.Error()
	if !errors.Is(err, kv.ErrDamaged) || strings.Contains(text, "'jorc ") {
		return ""
	}
	for _, r := range []struct{ key, remedy string }{ // by the end of the key, or what is in it
		{`/current/control":`, "'jorc cluster import --replace FILE' restores it; without a backup 'consul kv delete' of that key ends all its pauses and holds"},
		{`/current_version":`, "'jorc update trigger VERSION' writes it again"},
		{`/current/leaders":`, "an agent whose member may lead writes it again within a minute; 'jorc cluster leader --count N' does so at once"},
		{`/member":`, "its agent writes it again; without one 'jorc cluster join --node HOST' does"},
		{`/nodes/`, "'jorc status repair' makes it again"},
		{`/profile":`, "'jorc cluster import --replace FILE' restores it from a backup"},
		{`/hold":`, "'jorc cluster hold --node HOST' or 'unhold' writes it again"},
		{`/rollout":`, "'jorc update trigger VERSION' writes a new one"},
	} {
		if strings.Contains(text, r.key) {
			return r.remedy
		}
	}
	return ""
}

package main

import (
	"errors"
	"strings"

	"github.com/jorc/jorc/internal/kv"
)

// remedies say what to do about a damaged document, by the end of its key.
var remedies = []struct{ key, remedy string }{
	{`/control":`, "'jorc cluster import --replace FILE' restores it; without a backup 'consul kv delete' of that key ends all its pauses and holds"},
	{`/current_version":`, "'jorc update trigger VERSION' writes it again"},
	{`/leaders":`, "'consul kv delete' of that key, and then 'jorc cluster leader --count N', chooses leaders again"},
	{`/nodes/`, "'jorc status repair' makes it again"},
	{`/profile":`, "'jorc cluster import --replace FILE' restores it from a backup"},
}

// remedyOf is what to do about err when it is a damaged document and does not say
// so itself.
func remedyOf(err error) string {
	text := err.Error()
	if !errors.Is(err, kv.ErrDamaged) || strings.Contains(text, "'jorc ") {
		return ""
	}
	for _, r := range remedies {
		if strings.Contains(text, r.key) {
			return ": " + r.remedy
		}
	}
	return ""
}

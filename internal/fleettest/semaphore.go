//go:build linux

package fleettest

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// Hold is one holding of a slot or lock as its holder saw it.
type Hold struct {
	Who      string
	Asked    time.Time // zero: Granted
	Granted  time.Time
	Released time.Time // when the release began; zero: never
	Given    time.Time // when the release ended; zero: unknown, or never
}

// CheckSemaphore fails the test if holds is empty or, according to porcupine, not
// linearizable as a counting semaphore with that many slots.
func CheckSemaphore(t testing.TB, slots int, holds []Hold) {
	t.Helper()
	if len(holds) == 0 {
		t.Errorf("nobody held any of %d slots", slots)
		return
	}
	model := porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, _ any) (bool, any) {
			if input.(string) == "acquire" {
				return state.(int) < slots, state.(int) + 1
			}
			return state.(int) > 0, state.(int) - 1
		},
	}
	var ops []porcupine.Operation
	for i, h := range holds {
		asked := h.Asked
		if asked.IsZero() {
			asked = h.Granted
		}
		ops = append(ops, porcupine.Operation{ClientId: i, Input: "acquire", Call: asked.UnixNano(), Return: h.Granted.UnixNano()})
		if h.Released.IsZero() {
			continue // it is held for good, as far as its holder knows
		}
		end := int64(math.MaxInt64)
		if !h.Given.IsZero() {
			end = h.Given.UnixNano()
		}
		ops = append(ops, porcupine.Operation{ClientId: i, Input: "release", Call: h.Released.UnixNano(), Return: end})
	}
	if result, _ := porcupine.CheckOperationsVerbose(model, ops, time.Minute); result != porcupine.Ok {
		slices.SortFunc(holds, func(a, b Hold) int { return a.Granted.Compare(b.Granted) })
		t.Errorf("%d holdings of %d slots are %s as a semaphore's: %+v", len(holds), slots, result, holds)
		return
	}
	t.Logf("%d holdings of %d slots are those of a semaphore", len(holds), slots)
}

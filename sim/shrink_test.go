package sim_test

import (
	"slices"
	"testing"

	"github.com/jorc/jorc/sim"
)

// TestShrink: what is left is needed, and all of it.
func TestShrink(t *testing.T) {
	all := make([]int, 40)
	for i := range all {
		all[i] = i
	}
	for _, test := range []struct {
		name string
		all  []int
		// fails says of which of the parts one is enough.
		fails [][]int
		want  []int
	}{
		{"nothing is needed", all, [][]int{{}}, []int{}},
		{"nothing is there", nil, [][]int{{}}, nil},
		{"one", all, [][]int{{17}}, []int{17}},
		{"the first and the last", all, [][]int{{0, 39}}, []int{0, 39}},
		{"neighbours", all, [][]int{{19, 20, 21}}, []int{19, 20, 21}},
		{"all", all[:7], [][]int{all[:7]}, all[:7]},
		{"every third", all, [][]int{{0, 3, 6, 9, 12, 15}}, []int{0, 3, 6, 9, 12, 15}},
		{"either of two", all, [][]int{{1, 30}, {5}}, []int{5}},
	} {
		t.Run(test.name, func(t *testing.T) {
			fails := func(part []int) bool {
				return slices.ContainsFunc(test.fails, func(needed []int) bool {
					return !slices.ContainsFunc(needed, func(n int) bool { return !slices.Contains(part, n) })
				})
			}
			tries := 0
			got := sim.Shrink(test.all, func(part []int) bool {
				if !slices.IsSorted(part) {
					t.Errorf("the order is lost: %v", part)
				}
				tries++
				return fails(part)
			})
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if most := len(test.all) * (len(test.want) + 2); tries > most {
				t.Errorf("%d tries, want at most %d", tries, most)
			}
		})
	}
}

// TestShrinkOfAFailureThatComesAndGoes: a part that once does not fail stays in; what is returned failed when it was tried.
func TestShrinkOfAFailureThatComesAndGoes(t *testing.T) {
	tries, last := 0, []int(nil)
	all := []int{0, 1, 2, 3, 4, 5, 6, 7}
	got := sim.Shrink(all, func(part []int) bool {
		if tries++; tries%3 == 0 || !slices.Contains(part, 5) {
			return false
		}
		last = part
		return true
	})
	if !slices.Equal(got, last) || !slices.Contains(got, 5) {
		t.Errorf("got %v, the last that failed is %v", got, last)
	}
}

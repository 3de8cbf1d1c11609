//go:build race

package budget_test

// raced: the race detector makes histories, which have one goroutine, take five times as long.
const raced = true

//go:build !race

package budget_test

const raced = false

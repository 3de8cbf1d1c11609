package cluster_test

import (
	"errors"
)

var errTest = errors.New("a test's own")

package text

import (
	"bytes"
	"encoding/json"
)

// SameJSON reports whether both are encoded alike, as stored documents are compared: a field that is added
// to a type counts. What cannot be encoded is not like anything.
func SameJSON(a, b any) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

package profile

// SizeOf is jsonSize for tests.
func SizeOf(v Value) int { return jsonSize(v.tree) }

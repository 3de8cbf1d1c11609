package migrate

// Known reports whether the table has a setting.
func Known(path string) bool {
	_, ok := ruleOf(path)
	return ok
}

// Lossy reports whether a setting has to be named, because it becomes nothing.
func Lossy(path string) bool {
	r, _ := ruleOf(path)
	return r.to == ""
}

package text

// secretName matches names whose values are secrets: a word of the name says so, or the
// name ends with one, as PGPASSWORD does.
var secretName = Pattern(`(?i)(^|[^a-z0-9])(pass|pw|key|apikey|credentials?|secrets?|tokens?)($|[^a-z0-9])` +
	`|(passwd|password|passphrase|secret|token)s?($|[^a-z0-9])`)

// camelCase matches the boundaries of words that only a capital letter marks.
var camelCase = Pattern(`([a-z0-9])([A-Z])`)

// IsSecretName reports whether a variable, param or field of this name holds a secret:
// DB_PASSWORD, api-key, clientSecret.
func IsSecretName(name string) bool {
	return secretName().MatchString(camelCase().ReplaceAllString(name, "${1}_$2"))
}

// Package templates holds the templates that ship with jorc, in
// consul-template's language, and an example configuration for each.
package templates

import "embed"

// FS holds the templates by their file names (nginx-upstreams.ctmpl, …), and
// below examples/ their configurations.
//
//go:embed *.ctmpl examples
var FS embed.FS

// Package templates holds the templates that ship with jorc: files in
// consul-template's language with an example configuration for each, and what
// scripts of workflows take in.
package templates

import "embed"

// FS holds the templates by their file names: those of files
// (nginx-upstreams.ctmpl, …), with their configurations below examples/, and
// those for scripts (cluster-utilities.tmpl).
//
//go:embed *.ctmpl *.tmpl examples
var FS embed.FS

// Command startfloor links the libraries that jorc is made of and does nothing: what
// it costs to start is the floor of every short command of jorc.
package main

import (
	_ "github.com/hashicorp/consul-template/dependency"
	_ "github.com/hashicorp/consul-template/template"
	_ "github.com/hashicorp/consul/api"
	_ "github.com/urfave/cli/v2"
)

func main() {}

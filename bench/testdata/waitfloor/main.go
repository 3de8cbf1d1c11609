// Command waitfloor waits with blocking queries until a service has a passing
// instance, and exits: `waitfloor ADDRESS SERVICE`. It uses Consul's own client for Go
// and does nothing else, so what it takes is the floor of `jorc wait`.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/consul/api"
)

func main() {
	if err := wait(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "waitfloor:", err)
		os.Exit(1)
	}
}

func wait(address, service string) error {
	client, err := api.NewClient(&api.Config{Address: address})
	if err != nil {
		return err
	}
	options := &api.QueryOptions{WaitTime: time.Minute}
	for {
		found, meta, err := client.Health().Service(service, "", true, options)
		if err != nil || len(found) > 0 {
			return err
		}
		options.WaitIndex = meta.LastIndex
	}
}

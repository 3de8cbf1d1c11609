package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/doctor"
)

func pingCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "ping",
		Usage: "check that the local Consul agent and its leader answer",
		Description: "One line: node, datacenter, Consul's version, leader and the time for a round trip. Needs no rights; without agent:read it says less. " +
			"Exits 3 when Consul does not answer or knows no leader, 5 when it does not know the token.",
		Flags:  []cli.Flag{timeoutFlag()},
		Action: env.ping,
	}
}

// timeoutFlag bounds each question of ping, health and doctor.
func timeoutFlag() cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Value: doctor.DefaultTimeout, Usage: "wait at most this long for each answer"}
}

// timeout is the value of timeoutFlag.
func timeout(c *cli.Context) (time.Duration, error) {
	d := c.Duration("timeout")
	if d <= 0 {
		return 0, usagef(c, "--timeout must be above 0")
	}
	return d, nil
}

func (e *environment) ping(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	within, err := timeout(c)
	if err != nil {
		return err
	}
	client, settings, err := e.consul(c)
	if err != nil {
		return err
	}
	defer client.Close()
	p, failed := doctor.Ping(c.Context, client, settings.Consul.Address, within)
	if failed != nil && p.Node == "" {
		return failed
	}
	ms := fmt.Sprintf("%.2f", p.RoundTripMS)
	if format == formatTable {
		_, err = fmt.Fprintln(c.App.Writer, sentence(p, ms))
	} else {
		err = e.print(c, listing{rows: [][]string{{p.Node, p.Datacenter, p.Version, p.Leader, ms}}}, p)
	}
	if failed != nil {
		return failed
	}
	return err
}

// sentence is the answer for people; what is not known is left out.
func sentence(p doctor.Pong, ms string) string {
	leader := "no leader"
	if p.Leader != "" {
		leader = fmt.Sprintf("leader %s, %s ms", p.Leader, ms)
	}
	if p.Node == "" {
		return fmt.Sprintf("Consul at %s: %s (the token may not ask for more: agent:read)", printable(p.Address), leader)
	}
	return fmt.Sprintf("%s (%s, Consul %s): %s", printable(p.Node), printable(p.Datacenter), printable(p.Version), leader)
}

package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
)

func bootstrapACLCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "bootstrap-acl",
		Usage: "print or create the ACL policies of agent, operator and orchestrator",
		Description: "The policies of agent and orchestrator allow one node (--node, default: this one) to write its own keys only. " +
			"Tokens are made from them with 'consul acl token create -policy-name'.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "elector", Usage: "also print the policy that agents of members that may lead need in addition", DisableDefaultText: true},
			&cli.BoolFlag{Name: "create", Usage: "create or update the policies in Consul", DisableDefaultText: true},
		},
		Action: env.bootstrapACL,
	}
}

func (e *environment) bootstrapACL(c *cli.Context) error {
	if err := none(c); err != nil {
		return err
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	node, err := e.ownNode(c)
	if err != nil {
		return err
	}
	policies := cl.Policies(node)
	if c.Bool("elector") {
		policies = append(policies, cl.ElectorPolicy())
	}
	if c.Bool("create") {
		client, _, err := e.consul(c)
		if err != nil {
			return err
		}
		if err := createPolicies(c, client, policies); err != nil {
			return err
		}
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	if format == formatJSON {
		return writeJSON(c.App.Writer, policies)
	}
	for _, p := range policies {
		if _, err := fmt.Fprintf(c.App.Writer, "# %s: %s\n%s\n\n", p.Name, p.Description, p.Rules); err != nil {
			return err
		}
	}
	return nil
}

func createPolicies(c *cli.Context, client *consul.Client, policies []cluster.Policy) error {
	for _, p := range policies {
		changed, err := cluster.PutPolicy(c.Context, client, p)
		if err != nil {
			return fmt.Errorf("create policy %q (it needs acl:write): %w", p.Name, err)
		}
		if changed {
			fmt.Fprintf(c.App.ErrWriter, "jorc: wrote policy %s\n", p.Name)
		}
	}
	return nil
}

// minted is the answer of `profile token -o json`.
type minted struct {
	Secret   string `json:"secret_id"`
	Accessor string `json:"accessor_id"`
	Expires  string `json:"expires"`
}

func (e *environment) profileToken(c *cli.Context) error {
	if err := none(c); err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	t, err := cl.ProfileToken(c.Context, c.Duration("ttl"))
	if errors.Is(err, cluster.ErrInvalid) {
		return usagef(c, "--ttl: %v", err)
	}
	if err != nil {
		return err
	}
	if format == formatJSON {
		return e.writeJSON(c.App.Writer, minted{t.Secret, t.Accessor, t.Expires.UTC().Format("2006-01-02T15:04:05Z07:00")})
	}
	_, err = fmt.Fprintln(c.App.Writer, t.Secret)
	return err
}

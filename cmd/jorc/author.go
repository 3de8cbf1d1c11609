package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/consul"
)

// author is the author of a change, as the changed document records it: the ACL
// token, where Consul has ACLs, by its accessor ID and description, and as a hint
// the OS user and the host of the command. The secret of a token appears nowhere.
func (e *environment) author(c *cli.Context) (string, error) {
	client, _, err := e.consul(c)
	if err != nil {
		return "", err
	}
	defer client.Close()
	token, err := client.OwnToken(c.Context)
	switch {
	case consul.ACLsDisabled(err), errors.Is(err, consul.ErrDenied): // the change itself will be refused
		return e.osUser(), nil
	case err != nil:
		return "", err
	}
	text := "token " + token.AccessorID
	if token.Description != "" {
		text += fmt.Sprintf(" (%s)", brief(token.Description))
	}
	if name := e.osUser(); name != "" {
		text += ", " + name
	}
	return text, nil
}

// osUser is the OS user and the host of the command; empty: neither is known.
func (e *environment) osUser() string {
	if e.host.author == nil {
		return e.getenv("USER")
	}
	return e.host.author()
}

// brief is the beginning of a token's description.
func brief(text string) string {
	const most = 80
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return printable(text)
}

// osUser names the OS user and the host of this process.
func osUser(getenv func(string) string) string {
	name := getenv("USER")
	if u, err := user.Current(); name == "" && err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		name += "@" + host
	}
	return name
}

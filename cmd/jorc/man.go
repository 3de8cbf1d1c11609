package main

import (
	"io"

	"github.com/urfave/cli/v2"
)

func manCommand(*environment) *cli.Command {
	return &cli.Command{
		Name:        "man",
		Usage:       "print the manual page (roff)",
		Description: "Read it with 'jorc man | man -l -', or install it as jorc.8.",
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef(c, "no arguments expected")
			}
			page, err := c.App.ToManWithSection(8)
			if err != nil {
				return err
			}
			_, err = io.WriteString(underlying(c.App.Writer), page)
			return err
		},
	}
}

package main

import (
	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/doctor"
	"github.com/jorc/jorc/internal/web"
)

// hostStatus prints how this host is, as its agent says.
func (e *environment) hostStatus(c *cli.Context) error {
	conf, err := e.config(c)
	if err != nil {
		return err
	}
	s, err := doctor.AgentStatus(c.Context, conf)
	if err != nil {
		return err
	}
	l := rowsOf("what,name,state*,since,detail")
	needed := false
	for _, part := range web.Parts(s) {
		l.rows = append(l.rows, part.Row())
		needed = needed || part.Trouble
	}
	if err := e.print(c, l, s); err != nil {
		return err
	}
	return answerOf(!needed)
}

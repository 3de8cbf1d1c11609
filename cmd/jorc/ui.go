package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/ui"
	"github.com/jorc/jorc/internal/ui/pages"
)

func uiCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "ui", Usage: "show the fleet in a browser",
		Description: "Serves on loopback, with the rights of the caller's Consul token, until Ctrl-C. Prints an address with a key that lets in one browser, once; " +
			"the token never reaches the browser. Nothing can be changed in it: pages show the command to run instead. " +
			"For a team see the ui block of the agent's configuration.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "addr", Usage: "listen on `ADDR` of loopback, host:port; port 0 is a free one", Value: "127.0.0.1:0"},
			&cli.BoolFlag{Name: "open", Usage: "open the address in the desktop's browser", DisableDefaultText: true},
		},
		Action: env.onCluster(env.showUI),
	}
}

// shownUI is the answer of `ui`.
type shownUI struct {
	URL     string `json:"url"`
	Cluster string `json:"cluster"`
}

func (e *environment) showUI(c *cli.Context, cl *target) error {
	log := hclog.NewNullLogger()
	fleets := e.fleets(cl, log)
	server, err := ui.New(ui.Options{Addr: c.String("addr"), Fleets: fleets, Key: true, Pages: uiPages(), Log: log})
	if err != nil {
		return usagef(c, "--addr: %v", err)
	}
	if err := server.Listen(c.Context); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(c.Context)
	g.Go(func() error { return fleets.Run(ctx) })
	g.Go(func() error { return server.Run(ctx) })
	g.Go(func() error {
		if err := e.printLines(c, rowsOf("url", []string{server.URL()}), shownUI{server.URL(), cl.Name()}); err != nil {
			return err
		}
		note(c, "the address lets in one browser, once; Ctrl-C ends the server")
		if c.Bool("open") {
			return openBrowser(ctx, c, server.URL())
		}
		return nil
	})
	err = g.Wait()
	if c.Context.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return nil // Ctrl-C is how it ends
	}
	return err
}

// fleets are the clusters below the target's prefix.
func (e *environment) fleets(cl *target, log hclog.Logger) *ui.Fleets {
	return ui.NewFleets(ui.FleetOptions{Client: cl.client, Prefix: cl.settings.Prefix, Default: cl.Name(), Log: log})
}

// openBrowser opens the address in the desktop's browser until ctx ends. The key must
// not stand in the list of processes, so the browser is given a file that leads there.
func openBrowser(ctx context.Context, c *cli.Context, address string) error {
	program := map[string]string{"darwin": "open"}[runtime.GOOS]
	if program == "" {
		program = "xdg-open"
	}
	dir, err := os.MkdirTemp("", "jorc-ui-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the key in it has been used
	file := filepath.Join(dir, "open.html")
	text := fmt.Sprintf("<!DOCTYPE html><meta http-equiv=\"refresh\" content=\"0; url=%s\"><a href=\"%[1]s\">Open the fleet</a>\n", html.EscapeString(address))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if output, err := exec.CommandContext(ctx, program, file).CombinedOutput(); err != nil && ctx.Err() == nil {
		note(c, "%s cannot open a browser: %v %s: open the printed address by hand", program, err, printable(string(output)))
	}
	<-ctx.Done()
	return nil
}

func attentionCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "attention", Usage: "list what needs an operator, with its cause and the command that helps",
		Description: "Pauses, failures, holds, damaged documents, a missing orchestrator, hosts that are down, waits longer than usual. Exits 1 when there are any. " +
			"Advice is what is recommended although nothing is wrong: it does not change the exit code.",
		Action: env.onCluster(env.showAttention),
	}
}

func (e *environment) showAttention(c *cli.Context, cl *target) error {
	snapshot, err := e.fleets(cl, hclog.NewNullLogger()).Once(c.Context, cl.Name())
	if err != nil {
		return err
	}
	a := snapshot.Attention()
	l := listingOf("severity,kind,what,cause,command", a.Problems, func(p ui.Problem) []string {
		return []string{p.Severity, p.Kind, p.Title, p.Cause, p.Command}
	})
	for _, x := range a.Advice {
		l.rows = append(l.rows, []string{"advice", x.Kind, x.Text, "", x.Command})
	}
	if err := e.printProblems(c, l, a); err != nil {
		return err
	}
	return answerOf(a.Count == 0)
}

// uiPages are the pages of the browser.
func uiPages() ui.Pages {
	p := pages.New(pages.Options{
		Fleet: func(r *http.Request, name string) (*ui.Fleet, error) {
			return ui.ViewerOf(r.Context()).Fleet(r.Context(), name)
		},
		Clusters: func(r *http.Request) (ui.Clusters, error) { return ui.ViewerOf(r.Context()).Clusters(r.Context()) },
		LogsOut:  func(r *http.Request) bool { return ui.ViewerOf(r.Context()).LogsOut },
	})
	refused := func(w http.ResponseWriter, _ *http.Request, r ui.Refusal) { p.Refuse(w, r.Status, r.Why, r.Login) }
	return ui.Pages{Handler: p, Assets: p, Refused: refused}
}

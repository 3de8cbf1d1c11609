package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/text"
)

func filesCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "files", Usage: "show which hosts have which content of files", ArgsUsage: "[DESTINATION]",
		Description: "Of the templates with a stage and of those with report = true, as the hosts report them. Each line is one content of a file, by its digest, with the hosts that have it; " +
			"the content that appeared last comes first. With DESTINATION each host is a line. 'waiting' are hosts that have old content and wait for their grant of the stage. JSON has one object for each host and file.",
		Action: env.onCluster(env.showFiles),
	}
}

// fileContent is one content of a file, with the hosts that have it.
type fileContent struct {
	destination, content, stage string
	newest                      bool
	first, last                 time.Time
	hosts                       []string
	waiting                     int
}

func (e *environment) showFiles(c *cli.Context, cl *target) error {
	destination := argument(c, 0)
	s, err := cl.LoadReports(c.Context)
	if err != nil {
		return err
	}
	all, unreadable := s.Files(destination)
	for _, err := range unreadable {
		note(c, "%v", err)
	}
	if destination != "" && len(all) == 0 {
		return fmt.Errorf("file %q: %w%s", destination, cluster.ErrNoFile, text.Unknown(destination, "files", reportedFiles(s)))
	}
	if destination != "" {
		return e.print(c, listingOf("host,content,since,stage,state*,newest", all, func(f cluster.HostFile) []string {
			return []string{f.Host, f.Content, when(f.Since), f.Stage, f.State, yesOrNo(f.Newest)}
		}), all)
	}
	return e.print(c, listingOf("file,content,newest,hosts,first,last,stage,waiting,which", contentsOf(all), func(f fileContent) []string {
		const most = 5
		return []string{
			f.destination, f.content, yesOrNo(f.newest), strconv.Itoa(len(f.hosts)), when(f.first), when(f.last), f.stage, strconv.Itoa(f.waiting),
			text.Few(", ", f.hosts, most),
		}
	}), all)
}

// contentsOf are the contents of files, which are in order.
func contentsOf(files []cluster.HostFile) (all []fileContent) {
	for _, f := range files {
		n := len(all)
		if n == 0 || all[n-1].destination != f.Destination || all[n-1].content != f.Content {
			all = append(all, fileContent{destination: f.Destination, content: f.Content, stage: f.Stage, newest: f.Newest, first: f.Since})
			n++
		}
		one := &all[n-1]
		one.hosts = append(one.hosts, f.Host)
		if f.Since.Before(one.first) {
			one.first = f.Since
		}
		if f.Since.After(one.last) {
			one.last = f.Since
		}
		if f.State == cluster.StageWaiting {
			one.waiting++
		}
	}
	return all
}

// reportedFiles are the files that some host reports.
func reportedFiles(s cluster.State) (names []string) {
	all, _ := s.Files("")
	for _, f := range all {
		names = append(names, f.Destination)
	}
	return names
}

func yesOrNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

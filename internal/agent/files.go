package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/watch"
)

// Pauses between two reports of files: a file that changes all the time costs one write a
// minute.
const (
	settleFiles   = time.Second // changes of files of one cause are gathered
	maxFilesPause = time.Minute
)

// reportFiles keeps the content of files, of which templates with a stage or report = true
// are, in the host's report until ctx ends. It is written only when a content is another one.
func (p *part) reportFiles(ctx context.Context) error {
	reported := concurrency.NewSignal()
	watching, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // a stage may have brought back an old file
		defer close(ended)
		_ = p.report.Seen().Watch(watching, func(cluster.Report) { reported.Notify() }) // ends with watching
	}()
	defer func() { stop(); <-ended }()
	pause, last := concurrency.NewBackoff(settleFiles, maxFilesPause), time.Now()
	seen := map[string]seenFile{}
	for ctx.Err() == nil {
		now := readFiles(p.templates(), seen)
		if stored, _ := p.report.Seen().Get(); !maps.EqualFunc(now, stored.Files, sameFile) {
			_ = concurrency.Retry(ctx, concurrency.NewBackoff(firstReport, lastReport), func(ctx context.Context) error {
				_, err := p.report.Change(ctx, func(r cluster.Report) (cluster.Report, error) {
					return r.WithFiles(sinceOf(now, r.Files)), nil
				})
				return err
			}, func(err error, _ time.Duration) {
				p.log.Warn("cannot report the content of files, will retry", "error", err)
			}) // the loop's condition notices ctx's end
			if time.Since(last) > 2*maxFilesPause {
				pause.Reset()
			}
			last = time.Now()
			_ = concurrency.Sleep(ctx, pause.Next())
		}
		select {
		case <-p.filesChanged.C():
		case <-reported.C():
		case <-ctx.Done():
		}
		_ = concurrency.Sleep(ctx, settleFiles) // the loop's condition notices ctx's end
	}
	return nil
}

func sameFile(a, b cluster.FileReport) bool { return a.Content == b.Content && a.Stage == b.Stage }

// sinceOf returns files with the times of the files that are as they were reported.
func sinceOf(files, reported map[string]cluster.FileReport) map[string]cluster.FileReport {
	files = maps.Clone(files)
	for name, f := range files {
		if old, has := reported[name]; has && old.Content == f.Content {
			f.Since = old.Since
			files[name] = f
		}
	}
	return files
}

// seenFile is a file as it was last read.
type seenFile struct {
	info    os.FileInfo
	content string
}

// readFiles returns the content of the files of all templates that report theirs, the first
// MostFiles of them. A file that is as in seen is not read again.
func readFiles(templates []watch.Status, seen map[string]seenFile) map[string]cluster.FileReport {
	files := map[string]cluster.FileReport{}
	templates = slices.DeleteFunc(slices.Clone(templates), func(s watch.Status) bool {
		return !s.Reported || s.Destination == "" || !cluster.FileBounds(s.Destination)
	})
	slices.SortFunc(templates, func(a, b watch.Status) int { return cmp.Compare(a.Destination, b.Destination) })
	for _, s := range templates[:min(len(templates), cluster.MostFiles)] {
		f, err := readFile(s.Destination, seen[s.Destination])
		if err != nil { // there is no file yet, or jorc would not replace it
			delete(seen, s.Destination)
			continue
		}
		seen[s.Destination] = f
		files[s.Destination] = cluster.FileReport{Content: f.content, Since: f.info.ModTime().UTC().Truncate(time.Second), Stage: s.Stage}
	}
	return files
}

// contentBytes is the length of a digest: no two of a fleet's contents are likely to share one.
const contentBytes = 12

// readFile reads a regular file; symbolic links are not followed, since their target may be
// another's file.
func readFile(path string, seen seenFile) (seenFile, error) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return seenFile{}, err
	case !info.Mode().IsRegular():
		return seenFile{}, fmt.Errorf("%s is no regular file", path)
	case seen.info != nil && os.SameFile(info, seen.info) && info.Size() == seen.info.Size() && info.ModTime().Equal(seen.info.ModTime()):
		return seen, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return seenFile{}, err
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return seenFile{}, err
	}
	if !os.SameFile(info, opened) {
		return seenFile{}, fmt.Errorf("%s was replaced while it was read", path)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return seenFile{}, err
	}
	return seenFile{opened, hex.EncodeToString(sum.Sum(nil)[:contentBytes])}, nil
}

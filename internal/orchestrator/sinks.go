package orchestrator

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
)

// Sinks returns the sinks of a configuration; log is where those of kind "log"
// write.
func Sinks(all []config.EventSink, log hclog.Logger) []Sink {
	var sinks []Sink
	for _, s := range all {
		switch s.Kind {
		case config.SinkLog:
			sinks = append(sinks, LogSink{Log: log})
		case config.SinkFile:
			sinks = append(sinks, FileSink{Path: s.Path})
		case config.SinkWebhook:
			sinks = append(sinks, NewWebhookSink(s.URL, s.SecretFile))
		}
	}
	return sinks
}

// LogSink writes events to a log.
type LogSink struct{ Log hclog.Logger }

// Name implements Sink.
func (LogSink) Name() string { return "log" }

// Send implements Sink.
func (s LogSink) Send(_ context.Context, cluster string, events []Event) error {
	for _, e := range events {
		args := []any{"cluster", cluster, "seq", e.Seq, "kind", e.Kind}
		for _, f := range []struct{ name, value string }{{"node", e.Node}, {"service", e.Service}, {"category", e.Category}} {
			if f.value != "" {
				args = append(args, f.name, f.value)
			}
		}
		s.Log.Info(e.Text, args...)
	}
	return nil
}

// FileSink appends events to a file, one JSON object per line. When the file
// has grown to MaxSize it is renamed to <path>.1, and that to <path>.2 …
type FileSink struct {
	Path    string
	MaxSize int64 // bytes; default 64 MiB
	Keep    int   // renamed files; default 4
}

// Name implements Sink.
func (s FileSink) Name() string { return "file:" + s.Path }

// line is an event with its cluster: several may share a file.
type line struct {
	Cluster string `json:"cluster"`
	Event
}

// Send implements Sink. What it wrote is on the disk when it returns nil.
func (s FileSink) Send(_ context.Context, cluster string, events []Event) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	for _, e := range events {
		if err := encoder.Encode(line{cluster, e}); err != nil {
			return fmt.Errorf("encode event %d: %w", e.Seq, err)
		}
	}
	limit := s.MaxSize
	if limit <= 0 {
		limit = 64 << 20
	}
	p, err := durable.Locate(s.Path)
	if err != nil {
		return err
	}
	defer p.Dir.Close()
	if len(p.Missing) > 0 {
		return &fs.PathError{Op: "open", Path: s.Path, Err: fs.ErrNotExist}
	}
	for {
		f, size, err := s.open(p)
		if err != nil {
			return err
		}
		if size == 0 || size+int64(b.Len()) <= limit {
			err := appendTo(f, size, b.Bytes())
			if err == nil && size == 0 {
				err = p.Dir.Sync() // the file is new
			}
			return err
		}
		if err := errors.Join(s.rotate(p), f.Close()); err != nil {
			return err
		}
	}
}

// open opens the file and locks it until it is closed: several clusters, also
// of several agents, may share it. It returns the file's size.
func (s FileSink) open(p durable.Place) (*os.File, int64, error) {
	for {
		f, err := p.Dir.OpenRegular(p.Name, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o640)
		if err != nil {
			return nil, 0, err
		}
		durable.WaitLock(f)
		is, err := durable.FileInfo(f)
		if err != nil {
			return nil, 0, errors.Join(err, f.Close())
		}
		if now, err := p.Dir.Stat(p.Name); err == nil && now.Same(is) {
			return f, is.Size, nil
		}
		if err := f.Close(); err != nil { // it was renamed before it was locked
			return nil, 0, err
		}
	}
}

func (s FileSink) rotate(p durable.Place) error {
	keep := s.Keep
	if keep <= 0 {
		keep = 4
	}
	name := func(i int) string {
		if i == 0 {
			return p.Name
		}
		return p.Name + "." + strconv.Itoa(i)
	}
	for i := keep - 1; i >= 0; i-- {
		if err := p.Dir.Rename(name(i), name(i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return p.Dir.Sync() // or the new file could take the place of the one that is full
}

// appendTo appends data to f, of so many bytes, and closes it. A last line that
// has no end, because a crash tore it, is ended; of what cannot be written whole
// nothing stays.
func appendTo(f *os.File, size int64, data []byte) (err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	if size > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			data = append([]byte("\n"), data...)
		}
	}
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Truncate(size))
	}
	return f.Sync()
}

// Headers of a webhook's requests.
const (
	HeaderCluster   = "X-Jorc-Cluster"
	HeaderSignature = "X-Jorc-Signature-256" // "sha256=" and the HMAC of the body in hexadecimal digits
)

// WebhookSink posts events as a JSON array. Any answer but 2xx is a failure, a
// redirection too.
type WebhookSink struct {
	URL        string
	SecretFile string // what is in it, without space around it, signs the requests; empty: unsigned
	Client     *http.Client
}

// NewWebhookSink returns a sink with a client of its own.
func NewWebhookSink(address, secretFile string) WebhookSink {
	return WebhookSink{URL: address, SecretFile: secretFile, Client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Name implements Sink. All of the address but its host may be a secret, so the
// name is the host and a digest of the address.
func (s WebhookSink) Name() string { return "webhook:" + s.shown() }

func (s WebhookSink) shown() string {
	host := "?"
	if u, err := url.Parse(s.URL); err == nil {
		host = u.Host
	}
	digest := sha256.Sum256([]byte(s.URL))
	return host + "#" + hex.EncodeToString(digest[:6])
}

// Send implements Sink.
func (s WebhookSink) Send(ctx context.Context, cluster string, events []Event) error {
	body, err := json.Marshal(events)
	if err != nil {
		return fmt.Errorf("encode events: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("post events to %s: the address is not a URL", s.shown())
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(HeaderCluster, cluster)
	if s.SecretFile != "" {
		secret, err := os.ReadFile(s.SecretFile) // each time: it may be changed
		if err != nil {
			return fmt.Errorf("the secret that signs events: %w", err)
		}
		if secret = bytes.TrimSpace(secret); len(secret) == 0 {
			return fmt.Errorf("the secret that signs events: %s is empty", s.SecretFile)
		}
		req.Header.Set(HeaderSignature, Sign(secret, body))
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		var hidden *url.Error
		if errors.As(err, &hidden) {
			err = hidden.Err // without the address
		}
		return fmt.Errorf("post events to %s: %w", s.shown(), err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("post events to %s: %d %s", s.shown(), resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}

// Sign is the value of HeaderSignature for a body.
func Sign(secret, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write(body) // it cannot fail
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

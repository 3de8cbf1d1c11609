// Package diagnostics collects an archive for a bug report: what is known of a host, its
// agent and its cluster, without the values that users gave to them.
package diagnostics

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/doctor"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
)

// Bounds of the archive.
const (
	maxPart   = 4 << 20 // of one file, in bytes
	maxKeys   = 2000
	maxEvents = 200
)

// Options are what Collect needs.
type Options struct {
	Config   *config.Config
	Paths    []string // of the configuration
	Problem  error    // what is wrong with the configuration
	Client   *consul.Client
	Cluster  *cluster.Cluster
	Environ  []string
	Build    any           // of this program
	Timeout  time.Duration // of each part
	NoAgent  string        // why no agent can run on this computer
	Now      time.Time
	Hostname string
}

// Part is a file of the archive.
type Part struct {
	Name    string `json:"name"`
	Content string `json:"content"` // what it is
	Bytes   int    `json:"bytes"`
	Missing string `json:"missing"` // why it, or some of it, is not there

	data  []byte
	clean func(*scrubber, []byte) []byte
}

// Collect collects the parts. Each has Timeout; a part that cannot be had says why.
func Collect(ctx context.Context, o Options) []Part {
	s := newScrubber()
	s.secretsOf(o)
	document := (*scrubber).document
	all := []struct {
		name, content string
		clean         func(*scrubber, []byte) []byte
		read          func(context.Context) ([]byte, error)
	}{
		{"version.json", "this program and what it is built from", nil, o.versions},
		{"configuration.json", "the host's configuration: names, numbers, switches", document, o.configuration},
		{"environment.json", "names of the environment's variables for jorc, Consul and Vault", nil, o.environment},
		{"doctor.json", "findings of jorc doctor", document, o.doctor},
		{"status.json", "the agent's status", document, o.status},
		{"goroutines.txt", "the agent's goroutines", nil, o.fromAgent("goroutines")},
		{"log.txt", "the last lines of the agent's log, from level info", (*scrubber).lines, o.fromAgent("log")},
		{"events.json", "the last events of the cluster", document, o.events},
		{"keys.json", "the cluster's keys and documents", (*scrubber).keys, o.keys},
	}
	parts := make([]Part, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, o.Timeout)
			defer cancel()
			data, err := p.read(ctx)
			parts[i] = Part{Name: p.name, Content: p.content, data: data, clean: p.clean}
			if err != nil {
				parts[i].Missing = err.Error()
			}
		})
	}
	wg.Wait()
	for i := range parts {
		if parts[i].clean != nil && parts[i].Name != "log.txt" {
			s.learn(parts[i].data)
		}
	}
	for i := range parts {
		p := &parts[i]
		if p.clean != nil && p.data != nil {
			p.data = p.clean(s, p.data)
		}
		if len(p.data) > maxPart {
			p.data, p.Missing = p.data[:maxPart], fmt.Sprintf("cut after %d MiB", maxPart>>20)
		}
		p.Bytes, p.Missing = len(p.data), s.text(p.Missing, true)
	}
	return parts
}

// Write writes the archive: the parts that there are, below the folder name, and a list of
// all.
func Write(w io.Writer, name string, now time.Time, parts []Part) error {
	list, err := json.MarshalIndent(parts, "", "  ")
	if err != nil {
		return err
	}
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	for _, p := range append([]Part{{Name: "contents.json", data: append(list, '\n')}}, parts...) {
		if p.data == nil {
			continue
		}
		header := &tar.Header{Name: name + "/" + p.Name, Mode: 0o600, Size: int64(len(p.data)), ModTime: now, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(p.data); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

// secretsOf withholds the secrets of the configuration and the environment.
func (s *scrubber) secretsOf(o Options) {
	for _, kv := range o.Environ {
		name, value, _ := strings.Cut(kv, "=")
		if !slices.Contains([]string{"PATH", "HOME", "USER", "LANG", "TERM", "SHELL", "PWD", "TMPDIR", "LOGNAME"}, name) {
			s.withhold(value)
		}
	}
	for _, secret := range []config.Secret{o.Config.Consul.Token, o.Config.Vault.Token} {
		s.withhold(string(secret))
	}
	files := []string{o.Config.Consul.TokenFile, o.Config.Vault.TokenFile}
	if o.Config.LogStore != nil && o.Config.LogStore.S3 != nil {
		files = append(files, o.Config.LogStore.S3.CredentialsFile)
	}
	for _, file := range files {
		if file == "" {
			continue
		}
		if data, err := os.ReadFile(file); err == nil {
			s.withhold(string(data))
		}
	}
}

func marshal(v any, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(v, "", "  ")
	return append(data, '\n'), err
}

func (o Options) versions(context.Context) ([]byte, error) {
	modules := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			modules[m.Path] = m.Version
		}
	}
	return marshal(map[string]any{"jorc": o.Build, "created": o.Now, "modules": modules}, nil)
}

func (o Options) configuration(context.Context) ([]byte, error) {
	data, err := marshal(o.Config, nil)
	return data, errors.Join(err, o.Problem)
}

func (o Options) environment(context.Context) ([]byte, error) {
	names := []string{}
	for _, kv := range o.Environ {
		name, _, _ := strings.Cut(kv, "=")
		for _, prefix := range []string{"JORC_", "CONSUL_", "VAULT_"} {
			if strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return marshal(names, nil)
}

func (o Options) doctor(ctx context.Context) ([]byte, error) {
	return marshal(doctor.Examine(ctx, o.Client, doctor.Options{
		Config: o.Config, Paths: o.Paths, Problem: o.Problem, Timeout: o.Timeout / 4, NoAgent: o.NoAgent,
	}), nil)
}

func (o Options) status(ctx context.Context) ([]byte, error) {
	if o.Config.HTTP.Addr == "" {
		return nil, errors.New("the agent's status API is switched off")
	}
	host, port, err := net.SplitHostPort(o.Config.HTTP.Addr)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	data, err := get(ctx, client, "http://"+net.JoinHostPort(host, port)+"/v1/status", maxPart)
	if err != nil {
		return nil, fmt.Errorf("no agent answers: %w", err)
	}
	return data, nil
}

// fromAgent asks the running agent, as its user.
func (o Options) fromAgent(what string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		if o.NoAgent != "" {
			return nil, errors.New(o.NoAgent)
		}
		data, err := askAgent(ctx, o.Config.StateDir, what, maxPart)
		if err != nil {
			return nil, fmt.Errorf("no agent answers (run this as its user): %w", err)
		}
		return data, nil
	}
}

func (o Options) events(ctx context.Context) ([]byte, error) {
	events, _, err := orchestrator.LastEvents(ctx, o.Cluster.Store(), nil, maxEvents)
	if errors.Is(err, kv.ErrDamaged) && len(events) > 0 {
		data, _ := marshal(events, nil)
		return data, err
	}
	return marshal(events, err)
}

// storedKey is one key of the cluster.
type storedKey struct {
	Key   string          `json:"key"`
	Index uint64          `json:"index"`
	Value json.RawMessage `json:"document"`
}

// keys reads the cluster's keys; those of many hosts one by one, so that they are bounded.
func (o Options) keys(ctx context.Context) ([]byte, error) {
	prefix := o.Cluster.Store().Path("")
	names, _, err := o.Client.KVKeys(ctx, prefix, "", consul.Query{})
	if err != nil {
		return nil, err
	}
	var cut error
	if len(names) > maxKeys {
		names, cut = names[:maxKeys], fmt.Errorf("only %d of %d keys", maxKeys, len(names))
	}
	all, bytes := []storedKey{}, 0
	for _, name := range names {
		pair, _, err := o.Client.KVGet(ctx, name, consul.Query{})
		if err != nil {
			cut = fmt.Errorf("only %d of %d keys: %w", len(all), len(names), err)
			break
		}
		if pair == nil {
			continue
		}
		if bytes += len(pair.Value); bytes > maxPart {
			cut = fmt.Errorf("only %d of %d keys: they have more than %d MiB", len(all), len(names), maxPart>>20)
			break
		}
		k := storedKey{Key: name, Index: pair.ModifyIndex, Value: pair.Value}
		if !json.Valid(pair.Value) {
			text, err := json.Marshal(string(pair.Value))
			if err != nil {
				return nil, err
			}
			k.Value = text
		}
		all = append(all, k)
	}
	data, err := marshal(all, nil)
	return data, errors.Join(err, cut)
}

// keys returns what of the cluster's keys is harmless: their names and, of documents,
// what document leaves.
func (s *scrubber) keys(data []byte) []byte {
	var all []storedKey
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Appendf(nil, "%q", err.Error())
	}
	for i := range all {
		all[i].Key = s.text(all[i].Key, true)
		all[i].Value = s.document(all[i].Value)
	}
	out, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Appendf(nil, "%q", err.Error())
	}
	return append(out, '\n')
}

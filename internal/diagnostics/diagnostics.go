// Package diagnostics makes an archive for a bug report: the state of a host, its agent and
// its cluster, without the values that users gave to them.
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
	"github.com/jorc/jorc/internal/fleet"
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
	Cluster  *fleet.Cluster
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

	data []byte
}

// source is where a part comes from.
type source struct {
	name, content string
	read          func(context.Context) ([]byte, error)
	learn         func(*scrubber, []byte) // what is withheld of it; nil: nothing
	clean         func(*scrubber, []byte) []byte
}

func (o Options) sources() []source {
	learn := (*scrubber).learn
	asIs := func(_ *scrubber, data []byte) []byte { return data }
	document := func(shown map[string]bool) func(*scrubber, []byte) []byte {
		return func(s *scrubber, data []byte) []byte { return s.document(data, shown) }
	}
	return []source{
		{"version.json", "this program and what it is built from", o.versions, nil, asIs},
		{"configuration.json", "the host's configuration: names, numbers, switches", o.configuration, learn, document(nil)},
		{"environment.json", "names of the environment's variables for jorc, Consul and Vault", o.environment, nil, asIs},
		{"doctor.json", "findings of jorc doctor", o.doctor, learn, document(doctorSentences())},
		{"status.json", "the agent's status", o.status, learn, document(statusSentences())},
		{"goroutines.txt", "the agent's goroutines", o.fromAgent("goroutines"), nil, asIs},
		{"log.txt", "the last lines of the agent's log, from level info", o.fromAgent("log"), nil, (*scrubber).lines},
		{"events.json", "the last events of the cluster", o.events, learn, document(nil)},
		{"keys.json", "the cluster's keys and documents", o.keys, (*scrubber).learnKeys, (*scrubber).keys},
	}
}

// Collect collects the parts at the same time, each within Timeout; a part that cannot be
// read says why.
func Collect(ctx context.Context, o Options) []Part {
	s := newScrubber()
	s.secretsOf(o)
	sources := o.sources()
	parts := make([]Part, len(sources))
	var wg sync.WaitGroup
	for i, src := range sources {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, o.Timeout)
			defer cancel()
			data, err := src.read(ctx)
			parts[i] = Part{Name: src.name, Content: src.content, data: data}
			if err != nil {
				parts[i].Missing = err.Error()
			}
		})
	}
	wg.Wait()
	for i, src := range sources {
		if src.learn != nil {
			src.learn(s, parts[i].data)
		}
	}
	for i, src := range sources {
		p := &parts[i]
		if p.data != nil {
			p.data = src.clean(s, p.data)
		}
		if len(p.data) > maxPart {
			cut := fmt.Sprintf("cut after %d MiB", maxPart>>20)
			if p.Missing != "" {
				cut = p.Missing + "; " + cut
			}
			p.data, p.Missing = p.data[:maxPart], cut
		}
		p.Bytes, p.Missing = len(p.data), s.text(p.Missing)
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

// maxSecretFile is the size from which a file cannot be one of secrets, in bytes.
const maxSecretFile = 1 << 20

// secretsOf withholds the secrets of the configuration and the environment.
func (s *scrubber) secretsOf(o Options) {
	for _, kv := range o.Environ {
		name, value, _ := strings.Cut(kv, "=")
		if namesSecret().MatchString(name) {
			s.keepOut(value)
		}
		if !slices.Contains([]string{"PATH", "HOME", "USER", "LANG", "TERM", "SHELL", "PWD", "TMPDIR", "LOGNAME"}, name) {
			s.withhold(value)
		}
	}
	_, password, _ := strings.Cut(string(o.Config.Consul.Auth), ":")
	for _, secret := range []string{string(o.Config.Consul.Token), string(o.Config.Consul.Auth), password, string(o.Config.Vault.Token)} {
		s.keepOut(secret)
	}
	files := []string{o.Config.Consul.TokenFile, o.Config.Consul.AuthFile, o.Config.Vault.TokenFile}
	if o.Config.LogStore != nil && o.Config.LogStore.S3 != nil {
		files = append(files, o.Config.LogStore.S3.CredentialsFile)
	}
	if o.Config.Orchestrator != nil {
		for _, sink := range o.Config.Orchestrator.Sinks {
			files = append(files, sink.SecretFile)
		}
	}
	for _, w := range o.Config.Workflows {
		for i := range w.Tasks {
			files = append(files, w.Tasks[i].TokenFile)
		}
	}
	for _, file := range files {
		for line := range strings.Lines(readSecret(file)) {
			s.keepOut(line)
			for _, separator := range []string{"=", ":"} { // credentials of S3, and of a proxy
				if _, value, ok := strings.Cut(line, separator); ok {
					s.keepOut(value)
				}
			}
		}
	}
}

// readSecret returns what a file of secrets holds; nothing if there is no such file, or it cannot be read.
func readSecret(file string) string {
	if info, err := os.Stat(file); file == "" || err != nil || !info.Mode().IsRegular() {
		return "" // nothing else has an end
	}
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecretFile))
	if err != nil {
		return ""
	}
	return string(data)
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
	if err != nil && data == nil {
		return nil, fmt.Errorf("no agent answers: %w", err)
	}
	return data, err
}

// fromAgent asks the running agent, as its user.
func (o Options) fromAgent(what string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		if o.NoAgent != "" {
			return nil, errors.New(o.NoAgent)
		}
		data, err := askAgent(ctx, o.Config.StateDir, what, maxPart)
		if err != nil && data == nil {
			return nil, fmt.Errorf("no agent answers (only its user and root can ask it): %w", err)
		}
		return data, err
	}
}

func (o Options) events(ctx context.Context) ([]byte, error) {
	events, _, err := orchestrator.LastEvents(ctx, o.Cluster.Store(), orchestrator.EventFilter{}, maxEvents)
	if errors.Is(err, kv.ErrDamaged) && len(events) > 0 {
		data, _ := marshal(events, nil)
		return data, err
	}
	return marshal(events, err)
}

// storedKey is one key of the cluster.
type storedKey struct {
	Key   string          `json:"key"` // empty: not one of jorc's keys
	Index uint64          `json:"index"`
	Value json.RawMessage `json:"document"`
}

// keys reads the cluster's keys one by one, so that a large cluster costs as much as a
// small one.
func (o Options) keys(ctx context.Context) ([]byte, error) {
	prefix := o.Cluster.Store().Path("")
	names, meta, err := o.Client.KVKeys(ctx, prefix, "", consul.Query{})
	if err != nil {
		return nil, err
	}
	var missing error
	if meta.Filtered {
		missing = fmt.Errorf("%w: the token may not read all keys", consul.ErrDenied)
	}
	all, bytes := []storedKey{}, 0
	for i, name := range names {
		if i == maxKeys {
			missing = errors.Join(missing, fmt.Errorf("only %d of %d keys", maxKeys, len(names)))
			break
		}
		pair, _, err := o.Client.KVGet(ctx, name, consul.Query{})
		if err != nil {
			missing = errors.Join(missing, fmt.Errorf("only %d of %d keys: %w", i, len(names), err))
			break
		}
		if pair == nil {
			continue
		}
		if bytes += len(pair.Value); bytes > maxPart {
			missing = errors.Join(missing, fmt.Errorf("only %d of %d keys: they have more than %d MiB", i, len(names), maxPart>>20))
			break
		}
		k := storedKey{Index: pair.ModifyIndex, Value: pair.Value}
		if cluster.IsKey(strings.TrimPrefix(name, prefix)) {
			k.Key = name
		}
		if !json.Valid(pair.Value) {
			if k.Value, err = json.Marshal(string(pair.Value)); err != nil {
				return nil, err
			}
		}
		all = append(all, k)
	}
	data, err := marshal(all, nil)
	return data, errors.Join(err, missing)
}

// learnKeys withholds the words of the texts that keys leaves out.
func (s *scrubber) learnKeys(data []byte) {
	var all []storedKey
	if json.Unmarshal(data, &all) != nil {
		return // keys returns none of it
	}
	for _, k := range all {
		if k.Key == "" {
			s.withhold(string(k.Value))
			continue
		}
		s.learn(k.Value)
	}
}

// keys returns what of the cluster's keys is harmless: the names of jorc's keys and what
// document leaves of their documents.
func (s *scrubber) keys(data []byte) []byte {
	var all []storedKey
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Appendf(nil, "%q", err.Error())
	}
	for i, k := range all {
		if k.Key == "" {
			all[i].Key, all[i].Value = "withheld: not one of jorc's keys", fmt.Appendf(nil, "%q", size(len(k.Value)))
			continue
		}
		all[i].Value = s.document(k.Value, nil)
	}
	out, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Appendf(nil, "%q", err.Error())
	}
	return append(out, '\n')
}

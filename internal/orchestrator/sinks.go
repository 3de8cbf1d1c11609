package orchestrator

import (
	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
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

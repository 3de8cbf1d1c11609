package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"regexp"
	"strconv"

	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"
)

// logLevels are those of --log-level.
var logLevels = []string{"trace", "debug", "info", "warn", "error", "off"}

// logging is what flags and variables say about the log; an empty level and a
// nil json are not given.
func (e *environment) logging(c *cli.Context) (level string, json *bool, err error) {
	level, given := e.value(c, "log-level")
	if given {
		if err := oneOf(c, "log-level", level, logLevels...); err != nil {
			return "", nil, err
		}
	}
	if c.IsSet("log-json") {
		v := c.Bool("log-json")
		return level, &v, nil
	}
	if text := e.getenv("JORC_LOG_JSON"); text != "" {
		v, err := strconv.ParseBool(text)
		if err != nil {
			return "", nil, usagef(c, "JORC_LOG_JSON must be true or false, not %q", text)
		}
		return level, &v, nil
	}
	return level, nil, nil
}

// commandLogger logs to stderr at the level asked for, else at standard: what a
// command has to say beside its answer.
func (e *environment) commandLogger(c *cli.Context, standard string) (hclog.Logger, error) {
	level, json, err := e.logging(c)
	if err != nil {
		return nil, err
	}
	if level == "" {
		level = standard
	}
	return e.logger(level, json != nil && *json), nil
}

// logger logs to stderr. A daemon calls it with its configuration's LogLevel
// and LogJSON, which flags and variables are part of already.
func (e *environment) logger(level string, json bool) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name:       "jorc",
		Level:      hclog.LevelFromString(level),
		Output:     e.stderr,
		JSONFormat: json,
	})
}

// bridgeStandardLog sends warnings and errors that libraries write to package
// log to logger. It changes the process: for commands that run template code, once.
func bridgeStandardLog(logger hclog.Logger) {
	log.SetFlags(0)
	log.SetOutput(libraryLog{logger.StandardWriter(&hclog.StandardLoggerOptions{InferLevels: true})})
}

// libraryLog drops what consul-template logs about single requests: it quotes
// names, addresses and answers, which may hold values.
type libraryLog struct{ to io.Writer }

// aboutRequest is the beginning of a line about one request: "[WARN] vault.read(secret/app): …".
var aboutRequest = regexp.MustCompile(`^\[\w+\] ([\w.]+)\(`)

func (l libraryLog) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("[TRACE]")) || bytes.HasPrefix(line, []byte("[DEBUG]")) {
		return len(line), nil
	}
	text := line
	if m := aboutRequest.FindSubmatch(line); m != nil {
		text = fmt.Appendf(nil, "[WARN] %s: a request had a problem; the message is withheld because it may quote a value", m[1])
	}
	if _, err := l.to.Write(text); err != nil {
		return 0, err
	}
	return len(line), nil
}

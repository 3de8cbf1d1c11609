package main

import (
	"log"
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

// bridgeStandardLog sends what libraries write to package log, such as
// consul-template's "[WARN] …", to logger. It changes the process: for commands
// that run template code, once.
func bridgeStandardLog(logger hclog.Logger) {
	log.SetFlags(0)
	log.SetOutput(logger.StandardWriter(&hclog.StandardLoggerOptions{InferLevels: true}))
}

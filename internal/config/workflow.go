package config

import "time"

// Workflow is a named list of tasks.
type Workflow struct {
	Name  string
	Tasks []Task
}

// Task is one step of a workflow.
type Task struct {
	Name        string
	Command     []string // or Script
	Script      string   // a template, rendered when the job is created
	User        string
	Dir         string
	Env         map[string]string
	TokenFile   string
	Timeout     time.Duration
	Retries     int
	RetryDelay  time.Duration
	OkExitCodes []int // default 0
	Idempotent  bool
	OnlyIf      []string // a string in HCL is a single program path
	Requires    []Requires
}

// Trigger runs a workflow once per change.
type Trigger struct {
	Name     string
	Service  string
	Key      string
	Prefix   string
	Event    string // a kind of event; which there are is known where they are made
	Workflow string
	Pos      string // file:line, for messages
}

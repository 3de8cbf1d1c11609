package nodes

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/jorc/jorc/internal/cluster"
)

// What moved to package cluster, until its users name that package.
type (
	Document = cluster.Report
	State    = cluster.CategoryState
	Answer   = cluster.GrantAnswer
)

// See package cluster.
const (
	Success     = cluster.StateSuccess
	Failed      = cluster.StateFailed
	Running     = cluster.StateRunning
	Pending     = cluster.StatePending
	Provisioned = cluster.CategoryProvisioned
	Config      = cluster.CategoryConfig
	Validation  = cluster.CategoryValidation

	GrantAccepted = cluster.GrantAccepted
	GrantFailed   = cluster.GrantFailed
	GrantStranded = cluster.GrantStranded
	GrantDone     = cluster.GrantDone

	maxName   = 128
	maxReport = cluster.MaxReport
)

// See package cluster.
var (
	ErrBadName  = cluster.ErrBadName
	ErrBadState = cluster.ErrBadState

	States        = cluster.States
	Brief         = cluster.Brief
	CheckVersion  = cluster.CheckVersion
	CheckCategory = cluster.CheckCategory
	CheckNode     = cluster.CheckNode
	CheckState    = cluster.CheckState
)

// indexValue is the value of a state's index key.
func indexValue(s State) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(struct {
		Since   time.Time `json:"since,omitzero"`
		Detail  string    `json:"detail,omitempty"`
		Version string    `json:"version,omitempty"`
		LogURL  string    `json:"log_url,omitempty"`
	}{s.Since, s.Detail, s.Version, s.LogURL})
	if err != nil {
		return []byte("{}") // a time beyond the year 9999
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

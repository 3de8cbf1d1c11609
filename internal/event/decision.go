package event

// Decision is one thing that was decided, for people. It becomes an event.
type Decision struct {
	Kind     string `json:"kind"`             // of the event
	Change   string `json:"change,omitempty"` // the id of the change that it is about
	Node     string `json:"node,omitempty"`
	Service  string `json:"service,omitempty"`
	Category string `json:"category,omitempty"`
	Text     string `json:"text"`             // what: "batch 2 of 3 begins"
	Reason   string `json:"reason,omitempty"` // why
	Before   string `json:"before,omitempty"`
	After    string `json:"after,omitempty"`
	// AuthorUnknown: it is about a change whose author is not recorded.
	AuthorUnknown bool `json:"author_unknown,omitempty"`
}

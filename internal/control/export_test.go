package control

import "time"

// AnswerOnce sets how long a request that asks once waits.
func (s *Server) AnswerOnce(within time.Duration) { s.once = within }

// ReadWithin sets how long a request may take to arrive.
func (s *Server) ReadWithin(d time.Duration) { s.read = d }

package consultest

import (
	"net"

	"github.com/jorc/jorc/internal/consultest/gossip"
)

// Bystanders keeps the leader from deregistering nodes that a test puts into the catalog
// with the check serfHealth: otherwise it does so within a minute, whenever it likes.
// They may be in the catalog or not, and their checks are what the test sets.
func (s *Server) Bystanders(nodes ...string) {
	s.t.Helper()
	members := make([]gossip.Member, len(nodes))
	for i, node := range nodes {
		members[i] = gossip.Bystander(node)
	}
	// Nothing answers there: a member that failed is still known to the leader for three days.
	nowhere := &net.UDPAddr{IP: net.ParseIP(s.IP), Port: 1}
	if err := gossip.Join(s.t.Context(), s.IP+":8301", nowhere, members); err != nil {
		s.t.Fatalf("consultest: %v", err)
	}
}

package consul

import (
	"strings"

	"github.com/hashicorp/consul/api"
)

// NodeMaintenance is the check by which Consul shows that a node is in
// maintenance mode.
const NodeMaintenance = api.NodeMaint

// JorcNote begins the notes of maintenance that jorc itself began.
const JorcNote = "jorc:"

// IsMaintenance tells whether a check is one by which Consul carries out its
// maintenance mode, of a node or of a service.
func IsMaintenance(checkID string) bool {
	return checkID == NodeMaintenance || strings.HasPrefix(checkID, api.ServiceMaintPrefix)
}

// IsJorcs tells by the notes of maintenance whether jorc itself began it.
func IsJorcs(notes string) bool { return strings.HasPrefix(notes, JorcNote) }

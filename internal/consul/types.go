package consul

import "github.com/hashicorp/consul/api"

// The API's own types, under names that packages above can use without
// importing the API.
type (
	KVPair              = api.KVPair
	KVPairs             = api.KVPairs
	ServiceEntry        = api.ServiceEntry
	ServiceAddress      = api.ServiceAddress
	HealthCheck         = api.HealthCheck
	HealthChecks        = api.HealthChecks
	CatalogService      = api.CatalogService
	CatalogNode         = api.CatalogNode
	CatalogRegistration = api.CatalogRegistration
	CatalogDeregister   = api.CatalogDeregistration
	Node                = api.Node
	AgentService        = api.AgentService
	AgentCheck          = api.AgentCheck
	AgentWeights        = api.AgentWeights
	ServiceRegistration = api.AgentServiceRegistration
	ServiceCheck        = api.AgentServiceCheck
	CARootList          = api.CARootList
	CARoot              = api.CARoot
	LeafCert            = api.LeafCert
	TxnOp               = api.TxnOp
	TxnOps              = api.TxnOps
	TxnResponse         = api.TxnResponse
	TxnError            = api.TxnError
	KVTxnOp             = api.KVTxnOp
	KVOp                = api.KVOp
	NodeTxnOp           = api.NodeTxnOp
	ServiceTxnOp        = api.ServiceTxnOp
	CheckTxnOp          = api.CheckTxnOp
	SessionEntry        = api.SessionEntry
	ACLToken            = api.ACLToken
	ACLPolicy           = api.ACLPolicy
	ACLTokenPolicyLink  = api.ACLTokenPolicyLink
)

// Verbs of KV operations in a transaction.
const (
	KVSet            = api.KVSet
	KVDelete         = api.KVDelete
	KVDeleteCAS      = api.KVDeleteCAS
	KVDeleteTree     = api.KVDeleteTree
	KVCAS            = api.KVCAS
	KVLock           = api.KVLock
	KVUnlock         = api.KVUnlock
	KVGet            = api.KVGet
	KVGetOrEmpty     = api.KVGetOrEmpty
	KVGetTree        = api.KVGetTree
	KVCheckSession   = api.KVCheckSession
	KVCheckIndex     = api.KVCheckIndex
	KVCheckNotExists = api.KVCheckNotExists
)

// States of health checks and services, as Consul writes them.
const (
	HealthPassing  = api.HealthPassing
	HealthWarning  = api.HealthWarning
	HealthCritical = api.HealthCritical
	HealthMaint    = api.HealthMaint
)

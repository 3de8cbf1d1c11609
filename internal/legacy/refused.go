package legacy

// RefusedCommand is a command of the old orchestrator without an equivalent.
type RefusedCommand struct{ Name, Instead string }

// Refused returns the commands of the old orchestrator that do not exist, and what to use instead.
func Refused() []RefusedCommand {
	return []RefusedCommand{
		{"debug_timeout", "'jorc update why' on the host that is late"},
		{"upgrade_status", "'jorc update show'"},
		{"enable_puppet", "'jorc cluster unhold --node HOST' (and 'jorc cluster hold')"},
		{"set_config", "'jorc cluster profile set KEY VALUE' (--role R, --node N)"},
		{"manage_config", "'jorc cluster profile set|get|remove KEY' (--role R, --node N)"},
		{"host_data", "'jorc cluster profile get KEY --node HOST --effective'"},
	}
}

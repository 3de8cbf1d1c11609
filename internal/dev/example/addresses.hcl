# Written at each start: where this host of 'jorc dev --hosts' has its data, and its addresses.
state_dir = [[ path "state" ]]

consul {
  address = "[[ .Consul ]]"
}

dns {
  address = "[[ .DNS ]]"
}

http {
  address = "[[ .Status ]]"
}
[[- if .UI ]]

ui { # the dashboard
  address = "[[ .UI ]]"
}
[[- end ]]

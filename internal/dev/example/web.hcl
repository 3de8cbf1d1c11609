# Written at each start: the two little HTTP services that 'jorc dev' itself serves.
[[- range .Web ]]

service "web" {
  id   = "[[ .ID ]]"
  port = [[ .Port ]]
  tags = ["http"]

  check { # Consul asks every second
    http     = "http://127.0.0.1:[[ .Port ]]/health"
    interval = "1s"
    timeout  = "1s"
  }
}
[[- end ]]

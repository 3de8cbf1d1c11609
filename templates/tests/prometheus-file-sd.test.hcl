config   = ["../examples/prometheus.hcl"]
template = "prometheus-targets"
source   = "../prometheus-file-sd.json.ctmpl"

service "web" {
  node    = "web-1"
  address = "10.0.0.11"
  port    = 8080
  tags    = ["http", "metrics"]
  meta    = { metrics_port = "9100" }
}

service "web" {
  node           = "web-2"
  address        = "10.0.0.12"
  port           = 8080
  tags           = ["http"]
  status         = "warning"
  weight         = 10
  warning_weight = 2
}

service "web" {
  node    = "web-3"
  address = "10.0.0.13"
  port    = 8080
  tags    = ["http"]
  status  = "maintenance"
}

service "db" {
  node             = "db-1"
  node_address     = "10.0.0.21"
  port             = 5432
  tags             = ["metrics"]
  tagged_addresses = { storage = "10.1.0.21" }
}

expect {
  file = "prometheus-file-sd.expected"
}

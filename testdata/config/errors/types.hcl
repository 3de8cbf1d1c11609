log_json = "yes"
cluster  = 3
consul {
  max_connections = "64"
}
service "web" {
  port             = "8080"
  tags             = "http"
  meta             = { version = 2 }
  tagged_addresses = ["10.0.0.1"]
  check {
    http     = ["http://localhost"]
    interval = 10
    header   = { Accept = 1 }
  }
}
service "db" {
  port = 80.5
}
service "big" {
  port = 65536
}
template "t" {
  contents      = "x"
  destination   = "/run/jorc-test/t"
  perms         = 0644
  min_instances = { web = "1", db = -1 }
  empty_after   = "30"
  max_shrink    = -5
  max_parallel  = -2
  allow_empty   = 1
  on_edit       = "reports"
  requires "db" {
    count = 0
    for   = "functionnal"
  }
}
member {
  roles  = [1]
  params = "none"
}

service "web" {
  check {}
  check {
    http     = "http://localhost"
    tcp      = "localhost:80"
    interval = "1s"
  }
  check {
    tcp = "localhost:80"
  }
  check {
    tcp      = "localhost"
    interval = "0s"
    timeout  = "-1s"
  }
  check {
    ttl      = "10s"
    interval = "5s"
  }
  check {
    alias_service = ""
  }
  check {
    http     = "localhost:80/health"
    interval = "1s"
  }
  check {
    tcp                      = "localhost:80"
    interval                 = "1s"
    method                   = "GET"
    status                   = "ok"
    failures_before_warning  = 3
    failures_before_critical = 2
  }
}

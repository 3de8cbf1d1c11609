# On each host of the application: it answers on port 8080, and on /health.
service "web" {
  port = 8080
  tags = ["http"]
  check {
    http     = "http://127.0.0.1:8080/health"
    interval = "2s"
    timeout  = "1s"
  }
}

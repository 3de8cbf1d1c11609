# On each host of the application: it answers on port 8080, and on /metrics.
service "app" {
  port = 8080
  tags = ["metrics"]
  check {
    http     = "http://127.0.0.1:8080/metrics"
    interval = "5s"
    timeout  = "1s"
  }
}

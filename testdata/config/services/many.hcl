services {
  id   = "red0"
  name = "redis"
  port = 6000
  tags = ["primary"]
  checks = [
    {
      args     = ["/bin/check_redis", "-p", "6000"]
      interval = "5s"
    }
  ]
  meta {
    zone = "a"
  }
  tagged_addresses {
    lan {
      address = "10.0.0.1"
      port    = 6000
    }
  }
}
services {
  id   = "red1"
  name = "redis"
  check {
    tcp      = "localhost:7000"
    interval = "5s"
  }
  weights {
    warning = 0
  }
}
service "jorc-style" {
  port             = 1
  tagged_addresses = { eth0 = "10.0.0.5" }
}

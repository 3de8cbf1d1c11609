# The load balancer.
template {
  source          = "DIR/in/haproxy.ctmpl"
  destination     = "DIR/files/haproxy/haproxy.cfg"
  command         = "DIR/bin/haproxy -c -f DIR/files/haproxy/haproxy.cfg && DIR/bin/systemctl reload haproxy"
  command_timeout = "60s"
  perms           = 0600
  backup          = true
  wait {
    min = "2s"
    max = "10s"
  }
}

log_level = "debug" // while it is new

template {
  source      = "/etc/haproxy/haproxy.cfg.ctmpl"
  destination = "/etc/haproxy/haproxy.cfg"
  user        = "root"
  group       = "haproxy"
  perms       = "0640"

  exec {
    command = ["/usr/local/bin/reload-haproxy", "--graceful", "drain time"]
    timeout = "30s"
    splay   = "15s"

    env {
      pristine = true
      custom   = ["PATH=/usr/bin:/bin", "HOME=/var/lib/haproxy"]
    }
  }
}

template {
  source          = "/etc/haproxy/maps/haproxy.cfg.ctmpl"
  destination     = "/etc/haproxy/maps/haproxy.cfg"
  left_delimiter  = "<<"
  right_delimiter = ">>"

  wait {
    min = "2s"
    max = "30s"
  }
}

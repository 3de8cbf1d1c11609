# On each host with haproxy.
template "haproxy-backends" {
  source      = "/etc/jorc/templates/haproxy-backends.ctmpl"
  destination = "/etc/haproxy/backends.cfg"
  check       = ["haproxy", "-c", "-q", "-f", "/etc/haproxy/haproxy.cfg", "-f", "{{.Staged}}"]
  reload      = ["systemctl", "try-reload-or-restart", "haproxy"]
  wait        = "1s:5s"
  max_shrink  = "50%"
  empty_after = "10s"
}

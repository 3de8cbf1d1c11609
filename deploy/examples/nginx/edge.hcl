# On each host with nginx.
template "nginx-upstreams" {
  source      = "/etc/jorc/templates/nginx-upstreams.ctmpl"
  destination = "/etc/nginx/conf.d/upstreams.conf"
  check       = ["/usr/lib/jorc/nginx-check", "{{.Staged}}", "{{.Destination}}"]
  reload      = ["systemctl", "try-reload-or-restart", "nginx"]
  wait        = "100ms:2s"
  max_shrink  = "50%"
  empty_after = "10s"
}

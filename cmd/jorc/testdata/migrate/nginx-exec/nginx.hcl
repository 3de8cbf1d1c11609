# nginx in a container: consul-template is process 1.
log_level = "warn"

template {
  source      = "DIR/in/upstreams.ctmpl"
  destination = "DIR/files/conf.d/upstreams.conf"
  perms       = 0644
}

template {
  contents    = "worker_connections {{ keyOrDefault \"nginx/connections\" \"512\" }};\n"
  destination = "DIR/files/limits.conf"
}

exec {
  command       = ["DIR/bin/nginx", "-g", "daemon off;"]
  reload_signal = "SIGHUP"
  kill_signal   = "SIGQUIT"
  kill_timeout  = "10s"
  splay         = "1s"
}

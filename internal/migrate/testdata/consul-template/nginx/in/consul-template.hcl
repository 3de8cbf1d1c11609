# Edge hosts render nginx's upstreams.
consul {
  # The local agent.
  address = "127.0.0.1:8500"

  retry {
    enabled     = true
    attempts    = 12
    backoff     = "250ms"
    max_backoff = "1m"
  }
}

log_level     = "warn"
kill_signal   = "SIGTERM"
reload_signal = "SIGHUP"
max_stale     = "10m"

wait {
  min = "5s"
  max = "10s"
}

# One server block for each healthy instance.
template {
  source      = "/etc/consul-template/upstreams.ctmpl"
  destination = "/etc/nginx/conf.d/upstreams.conf"
  perms       = 0644

  # nginx checks its configuration before it reloads.
  command         = "nginx -t && systemctl reload nginx"
  command_timeout = "60s"
  backup          = true
}

template {
  contents             = <<EOF
{{ range services }}
{{ .Name }} ${literal}
{{ end }}
EOF
  destination          = "/etc/nginx/services.txt"
  error_on_missing_key = true
  create_dest_dirs     = false

  wait {
    min = "1s"
  }
}

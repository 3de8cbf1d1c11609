# Written by 'jorc migrate consul-template'.

log_level = "warn"

consul {
  # The local agent.
  address = "127.0.0.1:8500"
}

# One server block for each healthy instance.
template "upstreams.conf" {
  source      = "/etc/consul-template/upstreams.ctmpl"
  destination = "/etc/nginx/conf.d/upstreams.conf"
  create_dirs = true
  perms       = "0644"
  wait        = "5s:10s"
  backup      = true
  # nginx checks its configuration before it reloads.
  reload         = ["sh", "-c", "nginx -t && systemctl reload nginx"]
  reload_timeout = "1m0s"
}

template "services.txt" {
  contents             = <<EOT
{{ range services }}
{{ .Name }} $${literal}
{{ end }}
EOT
  destination          = "/etc/nginx/services.txt"
  error_on_missing_key = true
  wait                 = "1s:4s"
}

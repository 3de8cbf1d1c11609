# Written by 'jorc migrate consul-template'.

log_level = "debug"

consul {
  address     = "https://consul.example.com:8501"
  token_file  = "/etc/jorc/consul.token"
  ca_file     = "/etc/ssl/consul-ca.pem"
  client_cert = "/etc/ssl/haproxy.pem"
  client_key  = "/etc/ssl/haproxy.key"
}

template "haproxy.cfg" {
  source         = "/etc/haproxy/haproxy.cfg.ctmpl"
  destination    = "/etc/haproxy/haproxy.cfg"
  create_dirs    = true
  perms          = "0640"
  user           = "root"
  group          = "haproxy"
  left_delim     = "[["
  right_delim    = "]]"
  reload         = ["env", "-i", "PATH=/usr/bin:/bin", "HOME=/var/lib/haproxy", "/usr/local/bin/reload-haproxy", "--graceful", "drain time"]
  reload_timeout = "30s"
}

template "haproxy.cfg-2" {
  source      = "/etc/haproxy/maps/haproxy.cfg.ctmpl"
  destination = "/etc/haproxy/maps/haproxy.cfg"
  create_dirs = true
  left_delim  = "<<"
  right_delim = ">>"
  wait        = "2s:30s"
}

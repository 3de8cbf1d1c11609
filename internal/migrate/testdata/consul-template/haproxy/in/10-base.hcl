consul {
  address = "consul.example.com:8501"
  token   = "b1gs33cr3t-token"

  ssl {
    enabled = true
    verify  = true
    ca_cert = "/etc/ssl/consul-ca.pem"
    cert    = "/etc/ssl/haproxy.pem"
    key     = "/etc/ssl/haproxy.key"
  }
}

default_delimiters {
  left  = "[["
  right = "]]"
}

log_level = "INFO"

syslog {
  enabled  = true
  facility = "LOCAL5"
}

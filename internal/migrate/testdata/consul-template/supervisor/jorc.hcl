# Written by 'jorc migrate consul-template'.

log_level = "error"

template "config.yml" {
  source      = "/app/config.ctmpl"
  destination = "/app/config.yml"
  create_dirs = true
}

# Written by 'jorc migrate consul-template'.

log_level = "error"

template "config.yml" {
  source      = "/app/config.ctmpl"
  destination = "/app/config.yml"
  create_dirs = true
}

process "server" {
  command       = ["/app/server", "--config", "/app/config.yml"]
  kill_signal   = "SIGTERM"
  kill_timeout  = "30s"
  reload_signal = "SIGUSR1"
  splay         = "5s"

  env {
    denylist = ["VAULT_*"]
    custom   = ["MODE=production"]
  }
}

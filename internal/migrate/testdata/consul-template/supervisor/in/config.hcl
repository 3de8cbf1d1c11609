log_level = "err"

log_file {
  path             = "/var/log/consul-template.log"
  log_rotate_bytes = 1048576
}

template {
  source      = "/app/config.ctmpl"
  destination = "/app/config.yml"
}

exec {
  command       = ["/app/server", "--config", "/app/config.yml"]
  reload_signal = "SIGUSR1"
  kill_signal   = "SIGTERM"
  kill_timeout  = "30s"
  splay         = "5s"

  env {
    pristine = false
    custom   = ["MODE=production"]
    denylist = ["VAULT_*"]
  }
}

nomad {
  address = "https://nomad.example.com:4646"
  token   = "nomad-secret"
}

template_error_fatal = true

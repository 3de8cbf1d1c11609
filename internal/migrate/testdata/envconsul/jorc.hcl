# Written by 'jorc migrate envconsul'.

log_level = "warn"

consul {
  address    = "https://127.0.0.1:8500"
  token_file = "/etc/jorc/consul.token"
  ca_file    = "/ca.pem"
}

vault {
  address    = "https://vault:8200"
  token_file = "/etc/jorc/vault.token"
}

process "app" {
  command       = ["/bin/app", "--verbose"]
  kill_signal   = "SIGHUP"
  kill_timeout  = "2s"
  reload_signal = "SIGUSR1"
  splay         = "5s"
  wait          = "5s:10s"

  env {
    pristine  = true
    allowlist = ["HOME", "CONSUL_*"]
    # The defaults.
    prefix "config/global" {}

    prefix "config/redis" {
      format = "config_redis_{{ key }}"
    }

    prefix "config/app@dc1" {
      format = "app_{{ key }}"
    }

    secret "secret/my-app" {
      format = "vault_secret_my_app_{{ key }}"
    }
    secret "secret/db" {}
    upcase   = true
    sanitize = true
  }
}

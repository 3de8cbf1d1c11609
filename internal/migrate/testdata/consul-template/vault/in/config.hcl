vault {
  address                = "https://vault.service.consul:8200"
  namespace              = "apps"
  vault_agent_token_file = "/run/vault/token"
  unwrap_token           = false
  renew_token            = true
  default_lease_duration = "60s"

  ssl {
    ca_cert = "/etc/ssl/vault-ca.pem"
    verify  = true
  }

  retry {
    attempts = 5
  }
}

template {
  contents = "{{ with secret \"secret/app\" }}password={{ .Data.password }}{{ end }} home={{ env \"HOME\" }}"

  destination = "/etc/app/secret.env"
  perms       = "0600"
  user        = "app"
  uid         = 1000

  function_blacklist = ["plugin"]
  sandbox_path       = "/etc/app"
  error_fatal        = false
}

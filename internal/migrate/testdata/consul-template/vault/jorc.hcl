# Written by 'jorc migrate consul-template'.

vault {
  address    = "https://vault.service.consul:8200"
  namespace  = "apps"
  token_file = "/run/vault/token"
  ca_file    = "/etc/ssl/vault-ca.pem"
}

template_options {
  allow_env = ["HOME"]
}

template "secret.env" {
  contents          = "{{ with secret \"secret/app\" }}password={{ .Data.password }}{{ end }} home={{ env \"HOME\" }}"
  destination       = "/etc/app/secret.env"
  create_dirs       = true
  perms             = "0600"
  user              = "app"
  function_denylist = ["plugin"]
  sandbox_path      = "/etc/app"
}

vault {
  address                = "VAULT"
  vault_agent_token_file = "DIR/token"
  renew_token            = false
  retry {
    attempts = 5
  }
}

template {
  contents             = "{{ with secret \"pki/issue/web\" \"common_name=web.example.com\" }}{{ .Data.certificate }}\n{{ .Data.issuing_ca }}\n{{ end }}"
  destination          = "DIR/files/tls/web.crt"
  error_on_missing_key = true
  command              = ["DIR/bin/systemctl", "reload", "web"]
}

template {
  contents    = "{{ with secret \"pki/issue/web\" \"common_name=web.example.com\" }}{{ .Data.private_key }}\n{{ end }}"
  destination = "DIR/files/tls/web.key"
  perms       = "0600"
}
